// Middle layer of the LaTeX parser: matrices, their sums and products.
#pragma once

#include <cstddef>

#include "math_equality/expression_parser.h"

namespace hone {

class MatrixParser : protected ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

 protected:
  // Returns true if a matrix begins or ends in the tokens [begin, end).
  [[nodiscard]] bool matrix_within(std::size_t begin, std::size_t end) const;
  // Parses terms joined by + and -, some of which contain matrices.
  [[nodiscard]] MathValue matrix_sum();

 private:
  MathValue matrix_product();
  MathValue matrix_factor();
  MathValue matrix();
  void matching_columns();
};

}  // namespace hone
