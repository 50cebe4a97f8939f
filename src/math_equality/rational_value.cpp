#include <algorithm>
#include <cstdlib>
#include <vector>

#include "math_equality/flint_values.h"
#include "math_equality/work.h"

namespace hone {
namespace {

using Op = MathNode::Op;

constexpr slong kMostBits = 20'000;      // maximum size of an exact number, numerator plus denominator
constexpr slong kMostFactorial = 2'000;  // maximum argument of exact factorials and binomials

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
  if (unit || fmpq_is_zero(result.value)) {  // powers of -1, 0 and 1 have no limit on the exponent
    if (power == 0 || (power % 2 == 0 && unit)) fmpq_one(result.value);
    return true;
  }
  WorkLimit::spend(result.bits() * std::abs(power) / 64);
  fmpq_pow_si(result.value, result.value, power);
  return true;
}

}  // namespace

std::string text_of_integer(const fmpz_t value) {
  std::string text(fmpz_sizeinbase(value, 10) + 2, '\0');
  fmpz_get_str(text.data(), 10, value);
  text.resize(text.find('\0'));
  return text;
}

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

bool rational_function_value(const MathTree& tree, const Point& point, Fmpq& result) {
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
  WorkLimit::spend(64);
  const ulong above = fmpz_get_ui(fmpq_numref(arguments[0].value));
  if (name == "factorial") fmpz_fac_ui(number.value, above);
  if (name == "binomial") fmpz_bin_uiui(number.value, above, fmpz_get_ui(fmpq_numref(arguments[1].value)));
  fmpq_set_fmpz(result.value, number.value);
  return true;
}

bool rational_value(const MathTree& tree, const Point& point, Fmpq& result) {
  WorkLimit::spend(1);
  switch (tree->op) {
    case Op::kNumber:
      read_number(result, tree->text);
      return true;
    case Op::kSymbol: {
      const auto place = point.find(tree->text);
      if (place == point.end()) return false;
      fmpq_set(result.value, place->second.value);
      return true;
    }
    case Op::kSum:
    case Op::kProduct: {
      Fmpq total;
      if (tree->op == Op::kProduct) fmpq_one(total.value);
      for (const MathTree& argument : tree->arguments) {
        Fmpq next;
        if (!rational_value(argument, point, next)) return false;
        (tree->op == Op::kSum ? fmpq_add : fmpq_mul)(total.value, total.value, next.value);
        WorkLimit::spend(total.bits() / 256);
        if (total.bits() > kMostBits) return false;
      }
      fmpq_set(result.value, total.value);
      return true;
    }
    case Op::kPower:
      return rational_power(tree, point, result);
    case Op::kFunction:
      return rational_function_value(tree, point, result);
    case Op::kUnknown: {
      const auto place = point.find(tree_text(tree));
      if (place == point.end()) return false;
      fmpq_set(result.value, place->second.value);
      return true;
    }
    case Op::kConstant:
    case Op::kInfinity:
      break;
  }
  return false;
}

}  // namespace hone
