#include "math_equality/algebra.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "math_equality/enclosure.h"
#include "math_equality/exact_field.h"
#include "math_equality/flint_values.h"
#include "math_equality/rational_functions.h"
#include "math_equality/work.h"

namespace hone {
namespace {

using Op = MathNode::Op;

constexpr std::size_t kMostSymbols = 24;  // symbols of a rational function in canonical form
constexpr std::size_t kMostFactored = 6;  // symbols of a rational function whose numerator is factored

// Returns true if a constant is zero: by rational arithmetic, by enclosures of 64 and 256 bits, or in the exact field.
// If none of them decides, an enclosure of 1,024 bits does.
bool is_zero_constant(const MathTree& tree) {
  if (Fmpq value; rational_value(tree, {}, value)) return fmpq_is_zero(value.value) != 0;
  Acb ball;
  for (const slong precision : {64, 256}) {
    enclose(ball.value, tree, {}, precision);
    if (acb_is_finite(ball.value) && !acb_contains_zero(ball.value)) return false;
  }
  if (const auto zero = exactly_zero(tree)) return *zero;
  enclose(ball.value, tree, {}, 1024);
  return is_tiny(ball.value, 400);
}

// --- Expressions with symbols

// Returns the k-th sample point. All values are positive for k = 0, negative for k = 1 and of mixed sign for k > 1.
// They are pseudorandom rational numbers, so that the values of different symbols are unrelated.
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

constexpr ulong kPoints = 6;            // sample points of a comparison
constexpr slong kPointPrecision = 256;  // bits of an enclosure at a point
constexpr slong kPointBits = 120;       // an enclosure of zero must be smaller than 2^-kPointBits

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
    if (const auto zero = zero_function(tree, symbols)) return *zero;
  }
  return defined >= 2;
}

// Returns the sign of an infinite value; 0 if the value is finite. Throws BeyondDomain if it cannot be decided.
int infinite_sign(const MathTree& tree) {
  if (!tree->has_infinity) return 0;
  WorkLimit::spend(1);
  if (tree->op == Op::kInfinity) return 1;
  if (tree->op != Op::kSum && tree->op != Op::kProduct) throw BeyondDomain();
  int sign = 0;
  for (const MathTree& argument : tree->arguments) {
    const int own = infinite_sign(argument);
    if (tree->op == Op::kSum && own * sign < 0) throw BeyondDomain();
    if (tree->op == Op::kSum && own != 0) sign = own;
    if (tree->op == Op::kProduct) {
      const auto finite = own != 0 ? std::optional(own) : compare_values(argument, number_tree(0));
      if (!finite || *finite == 0) throw BeyondDomain();
      sign = sign == 0 ? *finite : sign * *finite;
    }
  }
  return sign;
}

// Rounds to a multiple of 10^-places and returns the factor as text; nothing if the tree is not a real number.
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
  const std::vector<std::string> symbols = symbols_of_both(a, b);
  if (symbols.empty() || symbols.size() > kMostFactored) return false;
  const auto left = square_free_numerator(a, symbols);
  return left && left == square_free_numerator(b, symbols);
}

std::optional<int> degree_in(const MathTree& tree, const std::string& symbol) {
  if (!tree->has_symbols) return 0;
  WorkLimit::spend(1);
  int degree = 0;
  switch (tree->op) {
    case Op::kSymbol:
      return tree->text == symbol ? 1 : 0;
    case Op::kSum:
    case Op::kProduct:
      for (const MathTree& argument : tree->arguments) {
        const auto next = degree_in(argument, symbol);
        if (!next) return std::nullopt;
        degree = tree->op == Op::kSum ? std::max(degree, *next) : degree + *next;
      }
      break;
    case Op::kPower: {
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
