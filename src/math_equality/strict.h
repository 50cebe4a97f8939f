// Numbers as strict equality has them (docs/math-equality.md).
#pragma once

#include "math_equality/value.h"

namespace hone {

// Whether two scalars that the reference calls equal are so strictly: they have the same value; or the gold is a
// percentage and the answer its points without the sign; or one is a decimal that is the other, rounded. A decimal gold
// has the precision in which it is written; a decimal answer to a gold that is none needs kFewestDigits digits. Zero is
// no rounded number.
inline constexpr int kFewestDigits = 7;  // significant ones
[[nodiscard]] bool equal_strictly(const MathScalar& gold, const MathScalar& answer);

// Whether "left = right" cannot be meant: both say different things of the same symbols, or of none, or differ by a
// number. A symbol that only the left has makes it the name of a quantity, as in "x + y = 3" and "f(2) = 5".
[[nodiscard]] bool contradict(const MathScalar& left, const MathScalar& right);

}  // namespace hone
