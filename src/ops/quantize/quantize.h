// Quantization to e4m3 for products in FP8 while a model trains (core/float8.h).
//
// Every block of 128 numbers that a product sums has one scale, in f32:
//
//   operand         blocks                     a product sums over
//   x, dy as rows   1 x 128 of a row           its columns: y = x W^T, dx = dy W
//   dy as columns   128 x 1 of a column        the tokens: dW = dy^T x
//   x as columns    128 x 128                  the tokens: dW = dy^T x
//   W               128 x 128                  either dimension: y = x W^T, dx = dy W
//
// cuBLASLt multiplies blocks of 128 x 128 by vectors of 128 at 1.3 to 1.6 times the rate of vectors by vectors, for the
// largest matrices at about the same (docs/lab-notes.md). The numbers of x, which norms and gates have made, differ
// little within a block, those of gradients by many powers of two from token to token, so x has the blocks.
//
// Scales are the least powers of two with which no number of the block is above 448. A number is then rounded once, to
// e4m3, its product by the scale is exact in bf16, and W^T has the numbers of W whichever of them was quantized.
// Source: DeepSeek-V3 technical report (2024), section 3.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/block_scales.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct QuantizeOut {
  enum : std::size_t { rows, row_scale, columns, column_scale };
};
struct QuantizeWeightOut {
  enum : std::size_t { weight, scale, other, other_scale };
};

struct QuantizeAttributes {
  bool columns = false;  // quantizes x by columns too
  bool blocks = false;   // the columns in blocks of 128 x 128, otherwise of 128 x 1
  // Any number of rows, not only multiples of kQuantizedRows: for a product of each row alone; without columns.
  bool any_rows = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v("columns", columns);
    v("blocks", blocks);
    v("any_rows", any_rows);
  }
};

struct QuantizeWeightAttributes {
  bool plain = true;        // returns W
  bool transposed = false;  // returns W^T, after W

  // Index of the first output of W^T.
  [[nodiscard]] std::size_t transposed_out() const { return plain ? std::size_t{QuantizeWeightOut::other} : 0; }

  template <class Visitor>
  void fields(Visitor& v) {
    v("plain", plain);
    v("transposed", transposed);
  }
};

// Rows of a quantized matrix are a multiple of this, because cuBLASLt's products of e4m3 need aligned rows of 16 bytes.
inline constexpr std::int64_t kQuantizedRows = 16;

// An activation or gradient in e4m3. Rows past the count are 0.
struct QuantizedRows {
  Tensor rows;          // u8 [rows, k], in blocks of 1 x 128
  Tensor row_scale;     // f32 [k / 128, rows]
  Tensor columns;       // u8 [k, rows], x^T in blocks of 1 x 128 or 128 x 128; none unless requested
  Tensor column_scale;  // f32 [ceil(rows / 128), k], or that of a QuantizedWeight [k, rows]
};

// Quantizes x bf16 [rows, k], rows a multiple of kQuantizedRows (unless any_rows) and k of 128. The gradient of x is
// that of `rows`, as if nothing were rounded (the straight-through estimator). Throws Error if the type does not fit.
[[nodiscard]] QuantizedRows quantize(Tensor x, const QuantizeAttributes& attributes);

// Returns the types of the outputs for x. Throws Error that begins with `op` if x does not fit.
[[nodiscard]] std::vector<Type> quantized_types(const Type& x, const QuantizeAttributes& attributes,
                                                std::string_view op);

// Returns the outputs of quantize, or of an operation that it is fused with, by their names.
[[nodiscard]] QuantizedRows quantized_rows(std::span<const Tensor> outputs);

// A weight in e4m3.
struct QuantizedWeight {
  Tensor weight;  // u8 [n, k]
  Tensor scale;   // f32 [n / 128, k / 128], the second dimension rounded up to a multiple of 4; what is added is 1
};
struct QuantizedWeights {
  QuantizedWeight plain;       // W; none unless requested
  QuantizedWeight transposed;  // W^T, the same numbers; none unless requested
};

// Quantizes a weight bf16 [n, k], n and k multiples of 128, in blocks of 128 x 128. It has no gradient: scaled_linear()
// gives the gradient to the weight itself. Throws Error if the type does not fit or nothing is requested.
[[nodiscard]] QuantizedWeights quantize_weight(Tensor weight, const QuantizeWeightAttributes& attributes = {});

// Quantizes a weight into tensors of the types that quantize_weight() returns, such as states, in place. Throws Error
// if their types are others.
void quantize_weight_into(Tensor weight, const QuantizedWeights& held);

// Number of scales in a row of scales of blocks of 128 x 128, for a row of `columns` numbers.
[[nodiscard]] constexpr std::int64_t weight_scale_stride(std::int64_t columns) {
  return (scale_blocks(columns) + 3) / 4 * 4;
}

}  // namespace hone
