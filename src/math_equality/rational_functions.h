// Quotients of polynomials with rational coefficients in canonical form, on FLINT.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "math_equality/expression.h"

namespace hone {

// Whether it is the zero function; nothing where it is no rational function, or a large one. `symbols`: sorted, all of
// the tree's.
[[nodiscard]] std::optional<bool> zero_function(const MathTree& tree, const std::vector<std::string>& symbols);

// The product of the numerator's square-free factors, without its content, as text; nothing also where it is zero.
[[nodiscard]] std::optional<std::string> square_free_numerator(const MathTree& tree,
                                                               const std::vector<std::string>& symbols);

}  // namespace hone
