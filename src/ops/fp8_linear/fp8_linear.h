// Linear layer with weights in FP8: y = x W^T + bias, where W = bf16(e4m3 x scale) (core/float8.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gemm.h"
#include "core/block_scales.h"
#include "program/kernel.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct Fp8LinearIn {
  enum : std::size_t { x, weight, scale, bias };
};

struct Fp8LinearAttributes {
  std::int64_t scale_rows = kScaleBlock;  // rows of the weight for each row of scales
  // x is multiplied in e4m3 too: the FP8 pass makes quantize() and scaled_linear() of it, which have the kernels.
  bool quantizes_x = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v("scale_rows", scale_rows);
    v("quantizes_x", quantizes_x);
  }
};

// Returns y [rows, n], in bf16, for x [rows, k], weight [n, k], the bytes of e4m3 as u8, scale f32 [ceil(n /
// scale_rows), ceil(k / 128)] and bias [n] or none, both in bf16. The bits are those of linear() by the weights in
// bf16, for any number of rows. In the memory of a GPU the bytes may be in another order (backend/fp8_fragments.h). A
// program that has not gone through the precision pass may have x and bias in f32; y
// then is too. There is no gradient. With quantizes_x, n, k and scale_rows are multiples of 128, the bytes are row by
// row everywhere, and y is that of passes/fp8.h. Throws Error if the types do not fit.
[[nodiscard]] Tensor fp8_linear(Tensor x, Tensor weight, Tensor scale, Tensor bias = {},
                                const Fp8LinearAttributes& attributes = {});

// A product by FP8 weights: b has the bytes of e4m3, transposed, and these scales.
struct Fp8Product {
  GemmArgs args;
  BlockScales scales;
  bool in_fragments;  // the order of b
};
// The product of a call at full capacity, with the operands.
[[nodiscard]] Fp8Product fp8_product(const KernelCall& call);

}  // namespace hone
