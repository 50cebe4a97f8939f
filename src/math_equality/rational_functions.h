// Canonical forms of rational functions with rational coefficients, with FLINT.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "math_equality/expression.h"

namespace hone {

// Decides whether the expression is the zero function. Returns nothing if it is not a rational function or if it is too
// large. `symbols` are all symbols of the tree, sorted.
[[nodiscard]] std::optional<bool> zero_function(const MathTree& tree, const std::vector<std::string>& symbols);

// Returns the product of the square-free factors of the numerator, without its content, as a text. Returns nothing in
// the same cases and if the function is zero.
[[nodiscard]] std::optional<std::string> square_free_numerator(const MathTree& tree,
                                                               const std::vector<std::string>& symbols);

}  // namespace hone
