// Quantization of the rows of experts (ops/quantize), with columns for the weight gradient.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/quantize/quantize.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs. The outputs are those of quantize.
struct QuantizeExpertsIn {
  enum : std::size_t { x, start };
};

struct QuantizeExpertsAttributes {
  std::int64_t experts = 1;
  bool blocks = false;  // the columns in blocks of 128 x 128, otherwise of 128 x 1

  template <class Visitor>
  void fields(Visitor& v) {
    v("experts", experts);
    v("blocks", blocks);
  }
};

// Quantizes x bf16 [rows, k], whose rows are ordered by expert, rows from start[e] to start[e + 1] (ops/expert_order).
// `rows` and `row_scale` are those of quantize(). In `columns` u8 [k, padded], padded = padded_rows(rows, experts), the
// rows of each expert are filled up with zeros to a multiple of kScaleBlock, so that no block has rows of two experts;
// column_scale is f32 [padded / 128, k], or that of a QuantizedWeight [k, padded]. Rows that no expert has are 0 in
// `rows`; columns after those of the last expert are 0 on a CPU and undefined on a GPU. The gradient of x is that of
// `rows`. Throws Error if the types do not fit.
[[nodiscard]] QuantizedRows quantize_experts(Tensor x, Tensor start, const QuantizeExpertsAttributes& attributes);

// The most rows that the rows of `experts` experts can have once those of each are filled up.
[[nodiscard]] constexpr std::int64_t padded_rows(std::int64_t rows, std::int64_t experts) {
  return (rows + (kScaleBlock - 1) * experts) / kScaleBlock * kScaleBlock;
}

}  // namespace hone
