// What expressions mean, on FLINT, Arb and Calcium: exact where it matters, and never by floating point alone. Symbols
// stand for real numbers. All functions may throw BeyondDomain where numbers grow out of bounds.
#pragma once

#include <optional>
#include <string>

#include "math_equality/expression.h"

namespace hone {

// The same value, for all values of the symbols. Constants: enclosures that do not meet prove the difference (Arb), an
// exact number field proves equality (Calcium). With symbols: rational functions by their canonical form (FLINT);
// others by enclosures of 256 bits at several rational points, positive and negative, which is wrong with a chance far
// below that of a memory error.
[[nodiscard]] bool same_value(const MathTree& a, const MathTree& b);

// Both are real constants, and their nearest multiples of 10^-places, ties to even, are the same.
[[nodiscard]] bool same_rounded(const MathTree& a, const MathTree& b, int places);

// -1, 0 or 1 as a is less than, equal to or greater than b: real constants, infinities among them. Nothing where one of
// them is none, or where it cannot be told.
[[nodiscard]] std::optional<int> compare_values(const MathTree& a, const MathTree& b);

// The digits of an integer that was written as numbers, + - * / and small powers; nothing for all else.
[[nodiscard]] std::optional<std::string> integer_text(const MathTree& tree);

// The sign of the constant a / b where it is one that is neither 0 nor infinite: 1 or -1, or 0 where it is not real.
[[nodiscard]] std::optional<int> ratio_sign(const MathTree& a, const MathTree& b);

// Whether a = 0 and b = 0 have the same solutions, for rational functions of small degree: the square-free parts of
// their numerators agree up to a constant.
[[nodiscard]] bool same_roots(const MathTree& a, const MathTree& b);

// The greatest degree in `symbol` that a polynomial may have, at most 2; nothing where it may be more, or is none.
[[nodiscard]] std::optional<int> degree_in(const MathTree& tree, const std::string& symbol);

}  // namespace hone
