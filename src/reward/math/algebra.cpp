#include "reward/math/algebra.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#if __has_include(<flint/ca.h>)  // FLINT 3 holds all three
#include <flint/acb.h>
#include <flint/arb.h>
#include <flint/ca.h>
#include <flint/fmpq.h>
#include <flint/fmpz_mpoly_factor.h>
#include <flint/fmpz_mpoly_q.h>
#else
#include <acb.h>
#include <antic/nf_elem.h>
#include <arb.h>
#include <flint/fmpq.h>
#include <flint/fmpz_mpoly_factor.h>
// Calcium's inline functions are C: they take what flint_malloc returns as any pointer.
namespace {
struct AnyPointer {
  void* pointer;
  template <class T>
  operator T*() const {
    return static_cast<T*>(pointer);
  }
};
}  // namespace
#define flint_malloc(size) (AnyPointer{flint_malloc(size)})
#define flint_realloc(pointer, size) (AnyPointer{flint_realloc(pointer, size)})
#define flint_calloc(count, size) (AnyPointer{flint_calloc(count, size)})
#include <calcium/ca.h>
#include <calcium/fmpz_mpoly_q.h>
#undef flint_malloc
#undef flint_realloc
#undef flint_calloc
#endif

namespace hone {
namespace {

using Op = MathNode::Op;

constexpr slong kMostBits = 20'000;       // of an exact number
constexpr slong kMostFactorial = 2'000;   // computed exactly
constexpr slong kMostExponent = 64;       // of a polynomial, and of what is computed exactly with irrational bases
constexpr slong kMostTerms = 4'000;       // of a polynomial
constexpr std::size_t kMostSymbols = 24;  // of a rational function in canonical form

// --- owners of the library's values

struct Fmpz {
  Fmpz() { fmpz_init(value); }
  ~Fmpz() { fmpz_clear(value); }
  Fmpz(const Fmpz&) = delete;
  Fmpz& operator=(const Fmpz&) = delete;
  fmpz_t value;
};

struct Fmpq {
  Fmpq() { fmpq_init(value); }
  Fmpq(const Fmpq& other) : Fmpq() { fmpq_set(value, other.value); }
  Fmpq& operator=(const Fmpq& other) {
    fmpq_set(value, other.value);
    return *this;
  }
  ~Fmpq() { fmpq_clear(value); }
  [[nodiscard]] bool is_integer() const { return fmpz_is_one(fmpq_denref(value)) != 0; }
  [[nodiscard]] slong bits() const {
    return static_cast<slong>(fmpz_bits(fmpq_numref(value)) + fmpz_bits(fmpq_denref(value)));
  }
  fmpq_t value;
};

struct Arb {
  Arb() { arb_init(value); }
  ~Arb() { arb_clear(value); }
  Arb(const Arb&) = delete;
  Arb& operator=(const Arb&) = delete;
  arb_t value;
};

struct Acb {
  Acb() { acb_init(value); }
  ~Acb() { acb_clear(value); }
  Acb(const Acb&) = delete;
  Acb& operator=(const Acb&) = delete;
  acb_t value;
};

std::string text_of_integer(const fmpz_t value) {
  std::string text(fmpz_sizeinbase(value, 10) + 2, '\0');
  fmpz_get_str(text.data(), 10, value);
  text.resize(text.find('\0'));
  return text;
}

// "12", "-1", "0.25", "1/2"
void read_number(Fmpq& result, const std::string& text) {
  const std::size_t point = text.find('.');
  if (point == std::string::npos) {
    const bool read = fmpq_set_str(result.value, text.c_str(), 10) == 0;
    if (!read || fmpz_is_zero(fmpq_denref(result.value))) throw BeyondDomain();
    fmpq_canonicalise(result.value);
    return;
  }
  std::string digits = text;
  digits.erase(point, 1);
  Fmpz scale;
  if (fmpz_set_str(fmpq_numref(result.value), digits.c_str(), 10) != 0) throw BeyondDomain();
  fmpz_ui_pow_ui(scale.value, 10, text.size() - point - 1);
  fmpz_set(fmpq_denref(result.value), scale.value);
  fmpq_canonicalise(result.value);
}

using Point = std::map<std::string, Fmpq>;  // values of the symbols

// --- rational values

bool rational_value(const MathTree& tree, const Point& point, Fmpq& result);

bool rational_power(const MathTree& tree, const Point& point, Fmpq& result) {
  Fmpq exponent;
  if (!rational_value(tree->arguments[0], point, result) || !rational_value(tree->arguments[1], point, exponent) ||
      !exponent.is_integer() || !fmpz_fits_si(fmpq_numref(exponent.value))) {
    return false;
  }
  const slong power = fmpz_get_si(fmpq_numref(exponent.value));
  if (fmpq_is_zero(result.value) && power < 0) return false;
  const bool unit = fmpz_is_pm1(fmpq_numref(result.value)) && result.is_integer();
  if (!unit && !fmpq_is_zero(result.value) &&
      (std::abs(power) > kMostBits || result.bits() * std::abs(power) > kMostBits)) {
    return false;
  }
  if (unit || fmpq_is_zero(result.value)) {  // any exponent is cheap
    if (power == 0 || (power % 2 == 0 && unit)) fmpq_one(result.value);
    return true;
  }
  fmpq_pow_si(result.value, result.value, power);
  return true;
}

// Integers to an integer: factorials, binomials, common divisors.
bool integer_function(const MathTree& tree, const Point& point, Fmpq& result) {
  std::vector<Fmpq> arguments(tree->arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!rational_value(tree->arguments[i], point, arguments[i])) return false;
  }
  const std::string& name = tree->text;
  if (name == "max" || name == "min") {
    fmpq_set(result.value, arguments[0].value);
    for (const Fmpq& other : arguments) {
      if ((fmpq_cmp(other.value, result.value) > 0) == (name == "max")) fmpq_set(result.value, other.value);
    }
    return true;
  }
  fmpz* target = fmpq_numref(result.value);
  if (name == "abs") return fmpq_abs(result.value, arguments[0].value), true;
  if (name == "floor" || name == "ceil") {
    const auto divide = name == "floor" ? fmpz_fdiv_q : fmpz_cdiv_q;
    divide(target, fmpq_numref(arguments[0].value), fmpq_denref(arguments[0].value));
    fmpz_one(fmpq_denref(result.value));
    return true;
  }
  if (name == "mod") {
    if (fmpq_is_zero(arguments[1].value)) return false;
    Fmpq quotient;
    fmpq_div(quotient.value, arguments[0].value, arguments[1].value);
    Fmpz whole;
    fmpz_fdiv_q(whole.value, fmpq_numref(quotient.value), fmpq_denref(quotient.value));
    fmpq_mul_fmpz(quotient.value, arguments[1].value, whole.value);
    fmpq_sub(result.value, arguments[0].value, quotient.value);
    return true;
  }
  if (!std::ranges::all_of(arguments, [](const Fmpq& a) { return a.is_integer(); })) return false;
  if (name == "gcd" || name == "lcm") {
    Fmpz joined;
    fmpz_set(joined.value, fmpq_numref(arguments[0].value));
    for (const Fmpq& other : arguments) {
      (name == "gcd" ? fmpz_gcd : fmpz_lcm)(joined.value, joined.value, fmpq_numref(other.value));
      if (fmpz_bits(joined.value) > kMostBits) return false;
    }
    fmpq_set_fmpz(result.value, joined.value);
    return true;
  }
  const auto small = [](const Fmpq& a) {
    return fmpz_sgn(fmpq_numref(a.value)) >= 0 && fmpz_cmp_si(fmpq_numref(a.value), kMostFactorial) <= 0;
  };
  if (!std::ranges::all_of(arguments, small) || (name != "factorial" && name != "binomial")) return false;
  Fmpz number;
  const ulong above = fmpz_get_ui(fmpq_numref(arguments[0].value));
  if (name == "factorial") fmpz_fac_ui(number.value, above);
  if (name == "binomial") fmpz_bin_uiui(number.value, above, fmpz_get_ui(fmpq_numref(arguments[1].value)));
  fmpq_set_fmpz(result.value, number.value);
  return true;
}

// False where it is no rational number, or not so simply.
bool rational_value(const MathTree& tree, const Point& point, Fmpq& result) {
  switch (tree->op) {
    case Op::number:
      read_number(result, tree->text);
      return true;
    case Op::symbol: {
      const auto place = point.find(tree->text);
      if (place == point.end()) return false;
      fmpq_set(result.value, place->second.value);
      return true;
    }
    case Op::sum:
    case Op::product: {
      Fmpq total;
      if (tree->op == Op::product) fmpq_one(total.value);
      for (const MathTree& argument : tree->arguments) {
        Fmpq next;
        if (!rational_value(argument, point, next)) return false;
        (tree->op == Op::sum ? fmpq_add : fmpq_mul)(total.value, total.value, next.value);
        if (total.bits() > kMostBits) return false;
      }
      fmpq_set(result.value, total.value);
      return true;
    }
    case Op::power:
      return rational_power(tree, point, result);
    case Op::function:
      return integer_function(tree, point, result);
    case Op::unknown: {
      const auto place = point.find(tree_text(tree));
      if (place == point.end()) return false;
      fmpq_set(result.value, place->second.value);
      return true;
    }
    case Op::constant:
    case Op::infinity:
      break;
  }
  return false;
}

// --- enclosures

// A ball around the value; one that is not finite where there is none, or at this precision none can be told.
void enclose(acb_t result, const MathTree& tree, const Point& point, slong precision);

// Throws where a power's exponent or its result is out of bounds, which Arb would compute with exponents of many words.
void check_size(const acb_t base, const acb_t exponent) {
  Arb size;
  Arb logarithm;
  acb_abs(size.value, exponent, 64);
  acb_abs(logarithm.value, base, 64);
  if (!arb_is_finite(size.value) || !arb_is_finite(logarithm.value)) return;
  if (arf_cmpabs_2exp_si(arb_midref(size.value), 40) > 0) throw BeyondDomain();
  if (!arb_contains_zero(logarithm.value)) {
    arb_log(logarithm.value, logarithm.value, 64);
    arb_mul(size.value, size.value, logarithm.value, 64);
    if (arf_cmpabs_2exp_si(arb_midref(size.value), 44) > 0) throw BeyondDomain();
  }
}

void enclose_power(acb_t result, const MathTree& tree, const Point& point, slong precision) {
  Acb base;
  enclose(base.value, tree->arguments[0], point, precision);
  Fmpq exponent;
  if (rational_value(tree->arguments[1], point, exponent)) {
    Acb power;
    acb_set_fmpq(power.value, exponent.value, precision);
    check_size(base.value, power.value);
    const int sign = fmpq_sgn(exponent.value);
    if (acb_is_zero(base.value)) {
      if (sign > 0) return acb_zero(result);
      if (sign == 0) return acb_one(result);
      return acb_indeterminate(result);
    }
    if (exponent.is_integer()) {
      return acb_pow_fmpz(result, base.value, fmpq_numref(exponent.value), precision);
    }
    if (fmpz_equal_ui(fmpq_denref(exponent.value), 2)) {  // roots stay finite around zero
      acb_sqrt(result, base.value, precision);
      return acb_pow_fmpz(result, result, fmpq_numref(exponent.value), precision);
    }
    return acb_pow(result, base.value, power.value, precision);
  }
  Acb power;
  enclose(power.value, tree->arguments[1], point, precision);
  check_size(base.value, power.value);
  acb_pow(result, base.value, power.value, precision);
}

void inverse(acb_t value, slong precision) { acb_inv(value, value, precision); }

void real_part_of(acb_t result, const acb_t value, void (*apply)(arb_t, const arb_t, slong), slong precision) {
  if (!arb_contains_zero(acb_imagref(value))) return acb_indeterminate(result);
  apply(acb_realref(result), acb_realref(value), precision);
  arb_zero(acb_imagref(result));
}

void extreme(acb_t result, const std::vector<MathTree>& arguments, bool greatest, const Point& point, slong precision) {
  enclose(result, arguments[0], point, precision);
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    Acb other;
    enclose(other.value, arguments[i], point, precision);
    if (!acb_is_real(result) || !acb_is_real(other.value)) return acb_indeterminate(result);
    const auto take = greatest ? arb_max : arb_min;
    take(acb_realref(result), acb_realref(result), acb_realref(other.value), precision);
  }
}

using AcbFunction = void (*)(acb_t, const acb_t, slong);
struct Elementary {
  std::string_view name;
  AcbFunction apply;
  bool of_inverse;  // apply(1 / x)
};
constexpr std::array kElementary = std::to_array<Elementary>({{"sin", acb_sin, false},
                                                              {"cos", acb_cos, false},
                                                              {"tan", acb_tan, false},
                                                              {"cot", acb_cot, false},
                                                              {"sec", acb_sec, false},
                                                              {"csc", acb_csc, false},
                                                              {"asin", acb_asin, false},
                                                              {"acos", acb_acos, false},
                                                              {"atan", acb_atan, false},
                                                              {"acsc", acb_asin, true},
                                                              {"asec", acb_acos, true},
                                                              {"acot", acb_atan, true},
                                                              {"sinh", acb_sinh, false},
                                                              {"cosh", acb_cosh, false},
                                                              {"tanh", acb_tanh, false},
                                                              {"asinh", acb_asinh, false},
                                                              {"acosh", acb_acosh, false},
                                                              {"atanh", acb_atanh, false},
                                                              {"gamma", acb_gamma, false}});

// Arb would reduce or exponentiate numbers of many words.
void check_argument(const acb_t value) {
  if (arf_cmpabs_2exp_si(arb_midref(acb_realref(value)), 40) > 0 ||
      arf_cmpabs_2exp_si(arb_midref(acb_imagref(value)), 40) > 0) {
    throw BeyondDomain();
  }
}

void enclose_function(acb_t result, const MathTree& tree, const Point& point, slong precision) {
  const std::string& name = tree->text;
  if (name == "max" || name == "min") return extreme(result, tree->arguments, name == "max", point, precision);
  if (Fmpq exact; integer_function(tree, point, exact)) return acb_set_fmpq(result, exact.value, precision);
  Acb value;
  enclose(value.value, tree->arguments[0], point, precision);
  if (!acb_is_finite(value.value)) return acb_indeterminate(result);
  if (name == "abs") {
    acb_abs(acb_realref(result), value.value, precision);
    return arb_zero(acb_imagref(result));
  }
  if (name == "log") {
    if (acb_contains_zero(value.value)) return acb_indeterminate(result);
    acb_log(result, value.value, precision);
    if (tree->arguments.size() < 2) return;
    enclose(value.value, tree->arguments[1], point, precision);
    if (!acb_is_finite(value.value) || acb_contains_zero(value.value)) return acb_indeterminate(result);
    acb_log(value.value, value.value, precision);
    return acb_div(result, result, value.value, precision);
  }
  check_argument(value.value);
  if (name == "exp") return acb_exp(result, value.value, precision);
  if (name == "floor") return real_part_of(result, value.value, arb_floor, precision);
  if (name == "ceil") return real_part_of(result, value.value, arb_ceil, precision);
  if (name == "factorial" || name == "gamma") {
    if (arf_cmpabs_2exp_si(arb_midref(acb_realref(value.value)), 24) > 0) throw BeyondDomain();
    if (name == "factorial") acb_add_si(value.value, value.value, 1, precision);
    return acb_gamma(result, value.value, precision);
  }
  if (name == "mod" || name == "binomial") {
    Acb other;
    enclose(other.value, tree->arguments[1], point, precision);
    if (name == "mod") {
      Acb whole;
      acb_div(whole.value, value.value, other.value, precision);
      real_part_of(whole.value, whole.value, arb_floor, precision);
      acb_mul(whole.value, whole.value, other.value, precision);
      return acb_sub(result, value.value, whole.value, precision);
    }
    check_argument(other.value);  // gamma(n + 1) / gamma(k + 1) / gamma(n - k + 1)
    Acb rest;
    acb_sub(rest.value, value.value, other.value, precision);
    for (acb_ptr part : {value.value, other.value, rest.value}) {
      acb_add_si(part, part, 1, precision);
      acb_rgamma(part, part, precision);
    }
    inverse(value.value, precision);
    acb_mul(result, value.value, other.value, precision);
    return acb_mul(result, result, rest.value, precision);
  }
  const auto known = std::ranges::find(kElementary, name, &Elementary::name);
  if (known == kElementary.end()) throw BeyondDomain();
  if (known->of_inverse) inverse(value.value, precision);
  known->apply(result, value.value, precision);
}

void enclose(acb_t result, const MathTree& tree, const Point& point, slong precision) {
  switch (tree->op) {
    case Op::number:
    case Op::symbol:
    case Op::unknown: {
      Fmpq value;
      if (!rational_value(tree, point, value)) throw BeyondDomain();
      return acb_set_fmpq(result, value.value, precision);
    }
    case Op::constant:
      acb_zero(result);
      if (tree->text == "pi") return arb_const_pi(acb_realref(result), precision);
      if (tree->text == "e") return arb_const_e(acb_realref(result), precision);
      if (tree->text == "gamma") return arb_const_euler(acb_realref(result), precision);
      return acb_onei(result);
    case Op::sum:
    case Op::product: {
      Acb total;
      Acb next;
      if (tree->op == Op::product) acb_one(total.value);
      for (const MathTree& argument : tree->arguments) {
        enclose(next.value, argument, point, precision);
        if (tree->op == Op::sum) {
          acb_add(total.value, total.value, next.value, precision);
        } else {
          acb_mul(total.value, total.value, next.value, precision);
        }
      }
      return acb_set(result, total.value);
    }
    case Op::power:
      return enclose_power(result, tree, point, precision);
    case Op::function:
      return enclose_function(result, tree, point, precision);
    case Op::infinity:
      break;
  }
  acb_indeterminate(result);
}

// --- exact values

class Calcium {
 public:
  Calcium() {
    ca_ctx_init(context_);
    context_->options[CA_OPT_PREC_LIMIT] = 1024;
    context_->options[CA_OPT_QQBAR_DEG_LIMIT] = 60;
  }
  ~Calcium() { ca_ctx_clear(context_); }
  Calcium(const Calcium&) = delete;
  Calcium& operator=(const Calcium&) = delete;

  // T_UNKNOWN where it is beyond this field.
  truth_t is_zero(const MathTree& tree) {
    Value value(*this);
    if (!evaluate(value.value, tree)) return T_UNKNOWN;
    return ca_check_is_zero(value.value, context_);
  }

 private:
  struct Value {
    explicit Value(Calcium& owner) : context(owner.context_) { ca_init(value, context); }
    ~Value() { ca_clear(value, context); }
    Value(const Value&) = delete;
    Value& operator=(const Value&) = delete;
    ca_ctx_struct* context;
    ca_t value;
  };

  bool power(ca_t result, const MathTree& tree) {
    Fmpq exponent;
    if (!rational_value(tree->arguments[1], {}, exponent)) {
      Value above(*this);
      if (!evaluate(result, tree->arguments[0]) || !evaluate(above.value, tree->arguments[1])) return false;
      return ca_pow(result, result, above.value, context_), true;
    }
    Fmpq whole;
    if (rational_value(tree, {}, whole)) return ca_set_fmpq(result, whole.value, context_), true;
    const fmpz* numerator = fmpq_numref(exponent.value);
    if (fmpz_cmpabs(fmpq_denref(exponent.value), numerator) < 0 && fmpz_bits(numerator) > 10) return false;
    if (fmpz_bits(fmpq_denref(exponent.value)) > 6) return false;
    if (!evaluate(result, tree->arguments[0])) return false;
    return ca_pow_fmpq(result, result, exponent.value, context_), true;
  }

  bool trigonometric(ca_t result, const std::string& name, const ca_t x) {
    if (name == "tan") return ca_tan(result, x, context_), true;
    if (name == "cot") return ca_cot(result, x, context_), true;
    if (name == "asin") return ca_asin(result, x, context_), true;
    if (name == "acos") return ca_acos(result, x, context_), true;
    if (name == "atan") return ca_atan(result, x, context_), true;
    if (name != "sin" && name != "cos" && name != "sec" && name != "csc") return false;
    Value sine(*this);
    Value cosine(*this);
    ca_sin_cos(sine.value, cosine.value, x, context_);
    ca_set(result, name == "sin" || name == "csc" ? sine.value : cosine.value, context_);
    if (name == "sec" || name == "csc") ca_inv(result, result, context_);
    return true;
  }

  bool function(ca_t result, const MathTree& tree) {
    if (Fmpq exact; integer_function(tree, {}, exact)) return ca_set_fmpq(result, exact.value, context_), true;
    Value x(*this);
    if (tree->arguments.size() > 2 || !evaluate(x.value, tree->arguments[0])) return false;
    const std::string& name = tree->text;
    if (name == "exp") return ca_exp(result, x.value, context_), true;
    if (name == "abs") return ca_abs(result, x.value, context_), true;
    if (name == "floor") return ca_floor(result, x.value, context_), true;
    if (name == "ceil") return ca_ceil(result, x.value, context_), true;
    if (name == "log") {
      ca_log(result, x.value, context_);
      if (tree->arguments.size() < 2) return true;
      if (!evaluate(x.value, tree->arguments[1])) return false;
      ca_log(x.value, x.value, context_);
      return ca_div(result, result, x.value, context_), true;
    }
    return tree->arguments.size() == 1 && trigonometric(result, name, x.value);
  }

  bool evaluate(ca_t result, const MathTree& tree) {
    switch (tree->op) {
      case Op::number: {
        Fmpq value;
        read_number(value, tree->text);
        ca_set_fmpq(result, value.value, context_);
        return true;
      }
      case Op::constant:
        if (tree->text == "pi") return ca_pi(result, context_), true;
        if (tree->text == "i") return ca_i(result, context_), true;
        if (tree->text == "gamma") return ca_euler(result, context_), true;
        ca_one(result, context_);
        return ca_exp(result, result, context_), true;
      case Op::sum:
      case Op::product: {
        Value total(*this);
        Value next(*this);
        if (tree->op == Op::product) ca_one(total.value, context_);
        for (const MathTree& argument : tree->arguments) {
          if (!evaluate(next.value, argument)) return false;
          (tree->op == Op::sum ? ca_add : ca_mul)(total.value, total.value, next.value, context_);
        }
        return ca_set(result, total.value, context_), true;
      }
      case Op::power:
        return power(result, tree);
      case Op::function:
        return function(result, tree);
      case Op::symbol:
      case Op::unknown:
      case Op::infinity:
        break;
    }
    return false;
  }

  ca_ctx_t context_;
};

bool is_tiny(const acb_t value, slong bits) {
  if (!acb_is_finite(value) || !acb_contains_zero(value)) return false;
  Arb size;
  acb_abs(size.value, value, 64);
  return mag_cmp_2exp_si(arb_radref(size.value), -bits) < 0 && arf_cmpabs_2exp_si(arb_midref(size.value), -bits) < 0;
}

// A constant. Where neither an enclosure nor the field decides, 1,024 bits do.
bool is_zero_constant(const MathTree& tree) {
  if (Fmpq value; rational_value(tree, {}, value)) return fmpq_is_zero(value.value) != 0;
  Acb ball;
  for (const slong precision : {64, 256}) {
    enclose(ball.value, tree, {}, precision);
    if (acb_is_finite(ball.value) && !acb_contains_zero(ball.value)) return false;
  }
  switch (Calcium().is_zero(tree)) {
    case T_TRUE:
      return true;
    case T_FALSE:
      return false;
    case T_UNKNOWN:
      break;
  }
  enclose(ball.value, tree, {}, 1024);
  return is_tiny(ball.value, 400);
}

// --- with symbols

// The k-th point: positive, negative, then mixed; the values of different symbols have nothing to do with each other.
Point point_of(const std::vector<std::string>& symbols, ulong k) {
  Point point;
  ulong state = 12345 + 7919 * k;
  const auto next = [&](ulong below) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return (state >> 33) % below;
  };
  for (const std::string& symbol : symbols) {
    Fmpq& value = point[symbol];
    fmpq_set_ui(value.value, 211 + next(1787), 307 + next(683));
    const ulong coin = next(2);
    if (k == 1 || (k > 1 && coin == 1)) fmpq_neg(value.value, value.value);
  }
  return point;
}

std::vector<std::string> symbols_of_both(const MathTree& a, const MathTree& b) {
  std::vector<std::string> symbols = symbols_of(a);
  for (std::string& name : symbols_of(b)) symbols.push_back(std::move(name));
  std::ranges::sort(symbols);
  symbols.erase(std::ranges::unique(symbols).begin(), symbols.end());
  return symbols;
}

constexpr ulong kPoints = 6;
constexpr slong kPointPrecision = 256;
constexpr slong kPointBits = 120;

class RationalFunctions {
 public:
  explicit RationalFunctions(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {
    fmpz_mpoly_ctx_init(context_, std::max<slong>(1, static_cast<slong>(symbols_.size())), ORD_LEX);
  }
  ~RationalFunctions() { fmpz_mpoly_ctx_clear(context_); }
  RationalFunctions(const RationalFunctions&) = delete;
  RationalFunctions& operator=(const RationalFunctions&) = delete;

  struct Value {
    explicit Value(RationalFunctions& owner) : context(owner.context_) { fmpz_mpoly_q_init(value, context); }
    ~Value() { fmpz_mpoly_q_clear(value, context); }
    Value(const Value&) = delete;
    Value& operator=(const Value&) = delete;
    fmpz_mpoly_ctx_struct* context;
    fmpz_mpoly_q_t value;
  };

  // False where it is none, or too large.
  bool evaluate(Value& result, const MathTree& tree) {
    if (!tree->has_symbols) {
      Fmpq value;
      if (!rational_value(tree, {}, value)) return false;
      fmpz_mpoly_q_set_fmpq(result.value, value.value, context_);
      return true;
    }
    switch (tree->op) {
      case Op::symbol:
      case Op::unknown: {
        const std::string name = tree->op == Op::symbol ? tree->text : tree_text(tree);
        const auto place = std::ranges::lower_bound(symbols_, name);
        if (place == symbols_.end() || *place != name) return false;
        fmpz_mpoly_q_gen(result.value, place - symbols_.begin(), context_);
        return true;
      }
      case Op::sum:
      case Op::product: {
        Value total(*this);
        Value next(*this);
        if (tree->op == Op::product) fmpz_mpoly_q_one(total.value, context_);
        for (const MathTree& argument : tree->arguments) {
          if (!evaluate(next, argument)) return false;
          if (size(total) * size(next) > kMostTerms) return false;
          (tree->op == Op::sum ? fmpz_mpoly_q_add : fmpz_mpoly_q_mul)(total.value, total.value, next.value, context_);
        }
        fmpz_mpoly_q_swap(result.value, total.value, context_);
        return true;
      }
      case Op::power:
        return power(result, tree);
      default:
        return false;
    }
  }

  // The product of the square-free parts of the numerator, with a positive leading coefficient, as text.
  std::optional<std::string> roots(const MathTree& tree) {
    Value value(*this);
    if (!evaluate(value, tree) || fmpz_mpoly_q_is_zero(value.value, context_)) return std::nullopt;
    fmpz_mpoly_factor_t factors;
    fmpz_mpoly_factor_init(factors, context_);
    fmpz_mpoly_t product;
    fmpz_mpoly_init(product, context_);
    fmpz_mpoly_one(product, context_);
    const bool factored = fmpz_mpoly_factor_squarefree(factors, fmpz_mpoly_q_numref(value.value), context_) != 0;
    for (slong i = 0; i < factors->num; ++i) fmpz_mpoly_mul(product, product, factors->poly + i, context_);
    char* text = fmpz_mpoly_get_str_pretty(product, nullptr, context_);
    std::string result(text);
    flint_free(text);
    fmpz_mpoly_clear(product, context_);
    fmpz_mpoly_factor_clear(factors, context_);
    return factored ? std::optional(std::move(result)) : std::nullopt;
  }

 private:
  slong size(const Value& value) const {
    return std::max<slong>(1, fmpz_mpoly_length(fmpz_mpoly_q_numref(value.value), context_) +
                                  fmpz_mpoly_length(fmpz_mpoly_q_denref(value.value), context_));
  }

  bool power(Value& result, const MathTree& tree) {
    Fmpq exponent;
    if (!rational_value(tree->arguments[1], {}, exponent) || !exponent.is_integer()) return false;
    if (fmpz_cmpabs(fmpq_numref(exponent.value), Limit().value) > 0) return false;
    Value base(*this);
    if (!evaluate(base, tree->arguments[0])) return false;
    const slong count = fmpz_get_si(fmpq_numref(exponent.value));
    if (count < 0) {
      if (fmpz_mpoly_q_is_zero(base.value, context_)) return false;
      fmpz_mpoly_q_inv(base.value, base.value, context_);
    }
    Value total(*this);
    fmpz_mpoly_q_one(total.value, context_);
    for (slong i = 0; i < std::abs(count); ++i) {
      if (size(total) * size(base) > kMostTerms) return false;
      fmpz_mpoly_q_mul(total.value, total.value, base.value, context_);
    }
    fmpz_mpoly_q_swap(result.value, total.value, context_);
    return true;
  }

  struct Limit : Fmpz {
    Limit() { fmpz_set_si(value, kMostExponent); }
  };

  std::vector<std::string> symbols_;
  fmpz_mpoly_ctx_t context_;
};

bool is_zero_everywhere(const MathTree& tree) {
  const std::vector<std::string> symbols = symbols_of(tree);
  int defined = 0;
  Acb ball;
  for (ulong k = 0; k < kPoints; ++k) {
    enclose(ball.value, tree, point_of(symbols, k), kPointPrecision);
    if (!acb_is_finite(ball.value)) continue;
    if (!acb_contains_zero(ball.value)) return false;
    defined += is_tiny(ball.value, kPointBits) ? 1 : 0;
  }
  if (symbols.size() <= kMostSymbols) {
    RationalFunctions functions(symbols);
    RationalFunctions::Value value(functions);
    if (functions.evaluate(value, tree)) return fmpz_mpoly_q_is_zero(value.value, value.context) != 0;
  }
  return defined >= 2;
}

// The sign of an infinite value, 0 where it is none; throws where it cannot be told.
int infinite_sign(const MathTree& tree) {
  if (!tree->has_infinity) return 0;
  if (tree->op == Op::infinity) return 1;
  if (tree->op != Op::sum && tree->op != Op::product) throw BeyondDomain();
  int sign = 0;
  for (const MathTree& argument : tree->arguments) {
    const int own = infinite_sign(argument);
    if (tree->op == Op::sum && own * sign < 0) throw BeyondDomain();
    if (tree->op == Op::sum && own != 0) sign = own;
    if (tree->op == Op::product) {
      const auto finite = own != 0 ? std::optional(own) : compare_values(argument, number_tree(0));
      if (!finite || *finite == 0) throw BeyondDomain();
      sign = sign == 0 ? *finite : sign * *finite;
    }
  }
  return sign;
}

// The nearest multiple of 10^-places, as an integer; nothing where the tree is no real number.
std::optional<std::string> rounded(const MathTree& tree, int places) {
  Fmpz scale;
  fmpz_ui_pow_ui(scale.value, 10, static_cast<ulong>(places));
  Fmpz nearest;
  if (Fmpq value; rational_value(tree, {}, value)) {
    fmpq_mul_fmpz(value.value, value.value, scale.value);
    Fmpz rest;
    fmpz_fdiv_qr(nearest.value, rest.value, fmpq_numref(value.value), fmpq_denref(value.value));
    fmpz_mul_2exp(rest.value, rest.value, 1);
    const int above = fmpz_cmp(rest.value, fmpq_denref(value.value));
    if (above > 0 || (above == 0 && fmpz_is_odd(nearest.value))) fmpz_add_ui(nearest.value, nearest.value, 1);
    return text_of_integer(nearest.value);
  }
  Acb ball;
  enclose(ball.value, tree, {}, 256);
  if (!acb_is_finite(ball.value) || !arb_contains_zero(acb_imagref(ball.value))) return std::nullopt;
  if (arf_cmpabs_2exp_si(arb_midref(acb_realref(ball.value)), 200) > 0) return std::nullopt;
  arb_mul_fmpz(acb_realref(ball.value), acb_realref(ball.value), scale.value, 256);
  Arb half;
  arb_set_d(half.value, 0.5);
  arb_add(half.value, half.value, acb_realref(ball.value), 256);
  arb_floor(half.value, half.value, 256);
  if (!arb_get_unique_fmpz(nearest.value, half.value)) return std::nullopt;
  return text_of_integer(nearest.value);
}

}  // namespace

bool same_value(const MathTree& a, const MathTree& b) {
  if (same_tree(a, b)) return true;
  if (a->has_infinity || b->has_infinity) {
    const int left = infinite_sign(a);
    return left != 0 && left == infinite_sign(b);
  }
  const MathTree difference = difference_tree(a, b);
  return difference->has_symbols ? is_zero_everywhere(difference) : is_zero_constant(difference);
}

bool same_rounded(const MathTree& a, const MathTree& b, int places) {
  for (const MathTree& tree : {a, b}) {
    if (tree->has_symbols || tree->has_infinity) return false;
  }
  const auto left = rounded(a, places);
  return left && left == rounded(b, places);
}

std::optional<int> compare_values(const MathTree& a, const MathTree& b) {
  if (a->has_symbols || b->has_symbols) return std::nullopt;
  if (a->has_infinity || b->has_infinity) {
    const int left = infinite_sign(a);
    const int right = infinite_sign(b);
    return left == right ? 0 : left < right ? -1 : 1;
  }
  const MathTree difference = difference_tree(a, b);
  if (Fmpq value; rational_value(difference, {}, value)) return fmpq_sgn(value.value);
  Acb ball;
  for (const slong precision : {64, 256}) {
    enclose(ball.value, difference, {}, precision);
    if (!acb_is_finite(ball.value) || !arb_contains_zero(acb_imagref(ball.value))) continue;
    if (arb_is_positive(acb_realref(ball.value))) return 1;
    if (arb_is_negative(acb_realref(ball.value))) return -1;
  }
  return is_zero_constant(difference) ? std::optional(0) : std::nullopt;
}

std::optional<std::string> integer_text(const MathTree& tree) {
  Fmpq value;
  if (!rational_value(tree, {}, value) || !value.is_integer()) return std::nullopt;
  return text_of_integer(fmpq_numref(value.value));
}

std::optional<int> ratio_sign(const MathTree& a, const MathTree& b) {
  if (a->has_infinity || b->has_infinity) return std::nullopt;
  const std::vector<std::string> symbols = symbols_of_both(a, b);
  Acb ratio;
  int defined = 0;
  for (ulong k = 0; k < kPoints; ++k) {
    Acb above;
    Acb below;
    const Point point = point_of(symbols, k);
    enclose(above.value, a, point, kPointPrecision);
    enclose(below.value, b, point, kPointPrecision);
    if (!acb_is_finite(above.value) || !acb_is_finite(below.value)) continue;
    if (acb_contains_zero(above.value) || acb_contains_zero(below.value)) return std::nullopt;
    acb_div(above.value, above.value, below.value, kPointPrecision);
    if (defined++ == 0) acb_set(ratio.value, above.value);
    if (!acb_overlaps(ratio.value, above.value)) return std::nullopt;
  }
  if (defined < 2) return std::nullopt;
  if (!arb_contains_zero(acb_imagref(ratio.value))) return 0;
  return arb_is_positive(acb_realref(ratio.value)) ? 1 : -1;
}

bool same_roots(const MathTree& a, const MathTree& b) {
  if (a->has_infinity || b->has_infinity) return false;
  std::vector<std::string> symbols = symbols_of_both(a, b);
  if (symbols.empty() || symbols.size() > 6) return false;
  RationalFunctions functions(std::move(symbols));
  const auto left = functions.roots(a);
  return left && left == functions.roots(b);
}

std::optional<int> degree_in(const MathTree& tree, const std::string& symbol) {
  if (!tree->has_symbols) return 0;
  int degree = 0;
  switch (tree->op) {
    case Op::symbol:
      return tree->text == symbol ? 1 : 0;
    case Op::sum:
    case Op::product:
      for (const MathTree& argument : tree->arguments) {
        const auto next = degree_in(argument, symbol);
        if (!next) return std::nullopt;
        degree = tree->op == Op::sum ? std::max(degree, *next) : degree + *next;
      }
      break;
    case Op::power: {
      const auto base = degree_in(tree->arguments[0], symbol);
      const auto exponent = integer_text(tree->arguments[1]);
      if (!base || !exponent || (*exponent != "0" && *exponent != "1" && *exponent != "2")) return std::nullopt;
      degree = *base * (exponent->front() - '0');
      break;
    }
    default:
      return std::nullopt;
  }
  return degree <= 2 ? std::optional(degree) : std::nullopt;
}

}  // namespace hone
