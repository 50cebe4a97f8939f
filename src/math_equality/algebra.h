// Decides equality and order of expressions with FLINT, Arb and Calcium, never by floating-point arithmetic alone.
// Symbols are real variables. Every function may throw BeyondDomain if numbers grow out of bounds.
#pragma once

#include <optional>
#include <string>

#include "math_equality/expression.h"

namespace hone {

// Returns true if a and b have the same value for all values of the symbols. For constants, disjoint enclosures prove
// the difference (Arb) and an exact number field proves equality (Calcium). With symbols, rational functions are
// compared by their canonical form (FLINT). Other expressions are compared by enclosures of 256 bits at several
// rational points, positive and negative; an error there is far less likely than a memory error.
[[nodiscard]] bool same_value(const MathTree& a, const MathTree& b);

// Returns true if both are real constants and round to the same multiple of 10^-places, with ties to even.
[[nodiscard]] bool same_rounded(const MathTree& a, const MathTree& b, int places);

// Returns -1, 0 or 1 if a is less than, equal to or greater than b. Both may be infinite. Returns nothing if one of
// them is not a real constant or if the order cannot be decided.
[[nodiscard]] std::optional<int> compare_values(const MathTree& a, const MathTree& b);

// Returns the decimal digits of an integer that is written with numbers, + - * / and small powers; otherwise nothing.
[[nodiscard]] std::optional<std::string> integer_text(const MathTree& tree);

// Returns the sign of a / b, 1 or -1, if it is a constant other than zero and infinity; 0 if the constant is not real;
// nothing if a / b is not such a constant.
[[nodiscard]] std::optional<int> ratio_sign(const MathTree& a, const MathTree& b);

// Returns true if a = 0 and b = 0 have the same solutions, for rational functions of small degree: the square-free
// parts of their numerators are equal up to a constant.
[[nodiscard]] bool same_roots(const MathTree& a, const MathTree& b);

// Returns an upper bound, at most 2, of the degree of a polynomial in `symbol`; nothing if the degree may be higher or
// if the expression is not a polynomial.
[[nodiscard]] std::optional<int> degree_in(const MathTree& tree, const std::string& symbol);

}  // namespace hone
