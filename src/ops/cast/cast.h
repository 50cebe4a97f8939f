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

// Returns x in another floating dtype, rounded to nearest even. The gradient is cast back to x's dtype.
[[nodiscard]] Tensor cast(Tensor x, DType dtype);

}  // namespace hone
