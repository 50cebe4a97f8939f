// Conversion between floating types.
#pragma once

#include <string>

#include "core/dtype.h"
#include "program/program.h"

namespace hone {

struct CastAttributes {
  std::string dtype = "f32";

  template <class Visitor>
  void fields(Visitor& v) {
    v("dtype", dtype);
  }
};

// x rounded to nearest even. The gradient is cast back.
[[nodiscard]] Tensor cast(Tensor x, DType dtype);

}  // namespace hone
