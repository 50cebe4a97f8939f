#include "math_equality/strict.h"

#include <algorithm>
#include <string>

#include "math_equality/algebra.h"

namespace hone {
namespace {

using Op = MathNode::Op;

// Returns the digits of the decimal in a number or percentage, as written but without the sign; null if there is none.
const std::string* decimal_digits(const MathTree& tree) {
  if (tree->op == Op::kNumber) return tree->text.find('.') == std::string::npos ? nullptr : &tree->text;
  if (tree->op != Op::kProduct) return nullptr;
  for (const MathTree& argument : tree->arguments) {
    if (const std::string* digits = decimal_digits(argument)) return digits;
  }
  return nullptr;
}

std::ptrdiff_t significant_digits(const std::string& digits) {
  const std::size_t first = digits.find_first_not_of("0.");
  if (first == std::string::npos) return 0;
  return std::ranges::count_if(digits.substr(first), [](char c) { return c != '.'; });
}

// Returns true if `decimal` has at least `fewest` significant digits and `exact` differs from it by at most half a unit
// of its last digit.
bool rounds_to(const MathTree& exact, const MathScalar& decimal, std::ptrdiff_t fewest) {
  const std::string* digits = decimal_digits(decimal.value);
  if (digits == nullptr || significant_digits(*digits) < fewest) return false;
  const std::size_t places = digits->size() - 1 - digits->find('.') + (decimal.percent ? 2 : 0);
  const MathTree half = number_tree("1/2" + std::string(places, '0'));
  const MathTree difference = difference_tree(exact, decimal.value);
  const auto above = compare_values(difference, half);
  const auto below = compare_values(difference, negative_tree(half));
  return above && below && *above <= 0 && *below >= 0;
}

bool is_decimal(const MathScalar& scalar) { return scalar.decimal && (scalar.number || scalar.percent); }

bool agree(const MathScalar& gold, const MathScalar& answer) {
  if (same_value(gold.value, answer.value)) return true;
  if (is_decimal(gold)) return rounds_to(answer.value, gold, 1);
  return is_decimal(answer) && rounds_to(gold.value, answer, kFewestDigits);
}

// Returns true for the constants e, i and gamma, whose letters may also name a quantity.
bool names_quantity(const MathTree& tree) { return tree->op == Op::kConstant && tree->text != "pi"; }

}  // namespace

bool equal_strictly(const MathScalar& gold, const MathScalar& answer) {
  if (gold.symbol || answer.symbol || agree(gold, answer)) return true;
  return gold.percent && !answer.percent && same_value(product_tree(gold.value, number_tree(100)), answer.value);
}

bool contradict(const MathScalar& left, const MathScalar& right) {
  if (names_quantity(left.value) || agree(left, right) || agree(right, left)) return false;
  if (symbols_of(left.value) == symbols_of(right.value)) return true;
  return ratio_sign(difference_tree(left.value, right.value), number_tree(1)).has_value();
}

}  // namespace hone
