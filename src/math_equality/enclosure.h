// Enclosures of values, on Arb.
#pragma once

#include "math_equality/flint_values.h"

namespace hone {

// A ball around the value; one that is not finite where there is none, or at this precision none can be told. Throws
// BeyondDomain where numbers grow out of bounds.
void enclose(acb_t result, const MathTree& tree, const Point& point, slong precision);

// Holds zero, and nothing as far from it as 2^-bits.
[[nodiscard]] bool is_tiny(const acb_t value, slong bits);

}  // namespace hone
