// The parser's middle: matrices, their sums and products.
#pragma once

#include <cstddef>

#include "math_equality/expression_parser.h"

namespace hone {

class MatrixParser : protected ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

 protected:
  // Whether a matrix begins between two tokens.
  [[nodiscard]] bool matrix_within(std::size_t begin, std::size_t end) const;
  // Terms joined by + and -, of which some hold matrices.
  [[nodiscard]] MathValue matrix_sum();

 private:
  MathValue matrix_product();
  MathValue matrix_factor();
  MathValue matrix();
  void matching_columns();
};

}  // namespace hone
