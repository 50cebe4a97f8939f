// Rules of strict equality for numbers (docs/math-equality.md).
#pragma once

#include "math_equality/value.h"

namespace hone {

inline constexpr int kFewestDigits = 7;  // minimum significant digits of a rounded answer to an exact gold answer

// Returns true if two scalars that Math-Verify considers equal are also equal by the strict rules: they have the same
// value; or the gold answer is a percentage and the answer is the same number of points without the sign; or one is a
// decimal and the other rounds to it. A decimal gold answer has the precision in which it is written. A decimal answer
// to an exact gold answer needs kFewestDigits significant digits. Zero is never a rounded number.
[[nodiscard]] bool equal_strictly(const MathScalar& gold, const MathScalar& answer);

// Returns true if "left = right" cannot be true: the sides are different numbers, or different functions of the same
// symbols, or differ by a constant. If only the left side contains a symbol, it names a quantity and does not
// contradict the right side, as in "x + y = 3" and "f(2) = 5".
[[nodiscard]] bool contradict(const MathScalar& left, const MathScalar& right);

}  // namespace hone
