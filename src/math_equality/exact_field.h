// Exact arithmetic with algebraic and transcendental numbers, with Calcium.
#pragma once

#include <optional>

#include "math_equality/expression.h"

namespace hone {

// Proves whether a constant is zero. Returns nothing if Calcium cannot decide or if the expression is too large.
[[nodiscard]] std::optional<bool> exactly_zero(const MathTree& constant);

}  // namespace hone
