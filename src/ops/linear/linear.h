// The affine map y = x W^T + bias.
#pragma once

#include "program/program.h"

namespace hone {

struct LinearAttributes {
  bool f32_output = false;  // y in f32 (f64 for f64) instead of in x's dtype

  template <class Visitor>
  void fields(Visitor& v) {
    v("f32_output", f32_output);
  }
};

// x [rows, k], weight [n, k], bias [n] or none, of one dtype -> y [rows, n]. An element is one chain of fused
// multiply-adds over k in f32 (f64), plus the bias, rounded once: a row does not depend on the number of rows. Rows
// past the count are zero.
[[nodiscard]] Tensor linear(Tensor x, Tensor weight, Tensor bias = {}, const LinearAttributes& attributes = {});

}  // namespace hone
