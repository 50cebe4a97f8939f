// Quantization of bf16 rows on the CPU, which quantize and the operations that it is fused with share, and its inverse,
// which the products share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/quantize/views.h"

namespace hone {

// Quantizes rows [0, used) of x [capacity, k]; the rows after them become 0.
void quantize_rows(const BFloat16* x, std::int64_t used, const QuantizedViews& to);

// Quantizes the columns of a tile of 128 x 128, in row_block of the columns' rows and column_block. `from` is the first
// of the `filled` rows of the tile, in column 0; the rows after them are zeros.
void quantize_columns(const BFloat16* from, std::int64_t filled, std::int64_t row_block, std::int64_t column_block,
                      const QuantizedViews& to);

// Bytes of scratch memory for numbers in bf16, with what follows them aligned.
[[nodiscard]] inline std::size_t bf16_bytes(std::int64_t elements) {
  constexpr std::size_t kPart = 64;
  return (static_cast<std::size_t>(elements) * sizeof(BFloat16) + kPart - 1) / kPart * kPart;
}
[[nodiscard]] inline Type as_bf16(const Type& type) { return {DType::kBf16, type.shape}; }

// Converts `rows` rows of bytes [rows, columns] with scales [ceil(columns / 128), stride], one for 128 numbers of a
// row.
void widen_quantized_rows(const TensorView& bytes, const TensorView& scale, std::int64_t rows, BFloat16* to);

// Converts bytes [rows, columns] with scales of blocks of 128 x 128, [ceil(rows / 128), stride].
void widen_quantized_blocks(const TensorView& bytes, const TensorView& scale, BFloat16* to);

}  // namespace hone
