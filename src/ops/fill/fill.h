// A tensor with one constant value, such as the gradient 1 of a loss.
#pragma once

#include <string>

#include "program/program.h"

namespace hone {

struct FillAttributes {
  double value = 0;
  std::string type = "f32[1]";  // as to_text prints it

  template <class Visitor>
  void fields(Visitor& v) {
    v("value", value);
    v("type", type);
  }
};

// Returns a tensor of a floating type whose rows in use hold `value`; rows past the count are zero.
[[nodiscard]] Tensor fill(Program& program, const Type& type, double value);

}  // namespace hone
