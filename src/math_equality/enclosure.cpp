#include "math_equality/enclosure.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "math_equality/work.h"

namespace hone {
namespace {

using Op = MathNode::Op;

// Throws BeyondDomain if the exponent or the result of a power is out of bounds: Arb would compute it with exponents of
// many words, which is slow.
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
    if (fmpz_equal_ui(fmpq_denref(exponent.value), 2)) {  // acb_sqrt stays finite if the ball contains zero
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
  bool of_inverse;  // the value is apply(1 / x)
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

// Throws BeyondDomain for large arguments, for which Arb would compute with numbers of many words.
void check_argument(const acb_t value) {
  if (arf_cmpabs_2exp_si(arb_midref(acb_realref(value)), 40) > 0 ||
      arf_cmpabs_2exp_si(arb_midref(acb_imagref(value)), 40) > 0) {
    throw BeyondDomain();
  }
}

void enclose_function(acb_t result, const MathTree& tree, const Point& point, slong precision) {
  const std::string& name = tree->text;
  if (name == "max" || name == "min") return extreme(result, tree->arguments, name == "max", point, precision);
  if (Fmpq exact; rational_function_value(tree, point, exact)) return acb_set_fmpq(result, exact.value, precision);
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

}  // namespace

void enclose(acb_t result, const MathTree& tree, const Point& point, slong precision) {
  const slong words = precision / 64;
  WorkLimit::spend(tree->op == Op::kFunction ? 32 * words : tree->op == Op::kPower ? 16 * words : words);
  switch (tree->op) {
    case Op::kNumber:
    case Op::kSymbol:
    case Op::kUnknown: {
      Fmpq value;
      if (!rational_value(tree, point, value)) throw BeyondDomain();
      return acb_set_fmpq(result, value.value, precision);
    }
    case Op::kConstant:
      acb_zero(result);
      if (tree->text == "pi") return arb_const_pi(acb_realref(result), precision);
      if (tree->text == "e") return arb_const_e(acb_realref(result), precision);
      if (tree->text == "gamma") return arb_const_euler(acb_realref(result), precision);
      return acb_onei(result);
    case Op::kSum:
    case Op::kProduct: {
      Acb total;
      Acb next;
      if (tree->op == Op::kProduct) acb_one(total.value);
      for (const MathTree& argument : tree->arguments) {
        enclose(next.value, argument, point, precision);
        if (tree->op == Op::kSum) {
          acb_add(total.value, total.value, next.value, precision);
        } else {
          acb_mul(total.value, total.value, next.value, precision);
        }
      }
      return acb_set(result, total.value);
    }
    case Op::kPower:
      return enclose_power(result, tree, point, precision);
    case Op::kFunction:
      return enclose_function(result, tree, point, precision);
    case Op::kInfinity:
      break;
  }
  acb_indeterminate(result);
}

bool is_tiny(const acb_t value, slong bits) {
  if (!acb_is_finite(value) || !acb_contains_zero(value)) return false;
  Arb size;
  acb_abs(size.value, value, 64);
  return mag_cmp_2exp_si(arb_radref(size.value), -bits) < 0 && arf_cmpabs_2exp_si(arb_midref(size.value), -bits) < 0;
}

}  // namespace hone
