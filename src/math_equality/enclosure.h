// Encloses the value of an expression in a ball of complex numbers, with Arb.
#pragma once

#include "math_equality/flint_values.h"

namespace hone {

// Computes a ball that contains the value of the expression at `point`, with `precision` bits. The ball is not finite
// if the value does not exist or cannot be enclosed with this precision. Throws BeyondDomain if numbers grow out of
// bounds.
void enclose(acb_t result, const MathTree& tree, const Point& point, slong precision);

// Returns true if the ball contains zero and no number of magnitude 2^-bits or more.
[[nodiscard]] bool is_tiny(const acb_t value, slong bits);

}  // namespace hone
