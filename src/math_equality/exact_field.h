// Exact arithmetic with algebraic and transcendental numbers, on Calcium.
#pragma once

#include <optional>

#include "math_equality/expression.h"

namespace hone {

// Whether a constant is zero, proved; nothing where Calcium cannot tell, or the expression is beyond it.
[[nodiscard]] std::optional<bool> exactly_zero(const MathTree& constant);

}  // namespace hone
