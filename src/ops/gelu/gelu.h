// The Gaussian error linear unit (Hendrycks and Gimpel, 2016): y = x P(X <= x) of a standard normal X.
#pragma once

#include <cstddef>
#include <string>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct GeluBackwardIn {
  enum : std::size_t { dy, x };
};

struct GeluAttributes {
  // "none": exact. "tanh": y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), GPT-2's.
  std::string approximate = "tanh";

  template <class Visitor>
  void fields(Visitor& v) {
    v("approximate", approximate);
  }
};

// Returns y [rows, n] for x [rows, n], computed in f32 (f64 for f64) and rounded once. Rows past the count are zero.
[[nodiscard]] Tensor gelu(Tensor x, const GeluAttributes& attributes = {});

}  // namespace hone
