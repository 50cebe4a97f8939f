#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/float8.h"
#include "core/parallel.h"
#include "ops/quantize/quantize.h"
#include "ops/quantize/rows.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

float scale_of(std::uint32_t magnitude) { return std::bit_cast<float>(e4m3_scale_bits(magnitude)); }

// Bits of the largest magnitude, those of a value that is not finite if there is one.
std::uint32_t magnitude_of(const BFloat16* values, std::int64_t count) {
  return std::bit_cast<std::uint32_t>(largest_magnitude(values, count)) >> 16;
}

// Quantizes one row, or clears it if x is null.
void quantize_row(const BFloat16* x, std::int64_t row, const QuantizedViews& to) {
  std::uint8_t* bytes = to.rows + row * to.k;
  for (std::int64_t block = 0; block < to.k / kScaleBlock; ++block) {
    const std::int64_t at = block * kScaleBlock;
    float& scale = to.row_scale[block * to.capacity + row];
    scale = x != nullptr ? scale_of(magnitude_of(x + at, kScaleBlock)) : 1;
    if (x != nullptr) {
      quantize_e4m3(x + at, scale, kScaleBlock, bytes + at);
    } else {
      std::memset(bytes + at, 0, kScaleBlock);
    }
  }
}

void quantize_forward(const KernelCall& call) {
  quantize_rows(call.in(0).as<BFloat16>(), call.in(0).rows(), quantized_views(call));
}

// Quantizes one block of 128 x 128 of a weight [n, k].
void quantize_block(const TensorView& weight, std::int64_t row, std::int64_t column, bool transposed,
                    const TensorView& to, const TensorView& scales) {
  const std::int64_t k = weight.row_size();
  const BFloat16* from = weight.as<BFloat16>() + row * k + column;
  std::uint32_t magnitude = 0;
  for (std::int64_t i = 0; i < kScaleBlock; ++i)
    magnitude = std::max(magnitude, magnitude_of(from + i * k, kScaleBlock));
  const float scale = scale_of(magnitude);
  const std::int64_t out_row = transposed ? column : row;
  const std::int64_t out_column = transposed ? row : column;
  scales.as<float>()[out_row / kScaleBlock * scales.row_size() + out_column / kScaleBlock] = scale;
  std::uint8_t* bytes = to.as<std::uint8_t>() + out_row * to.row_size() + out_column;
  std::array<std::uint8_t, kScaleBlock> line;
  for (std::int64_t i = 0; i < kScaleBlock; ++i) {
    if (!transposed) {
      quantize_e4m3(from + i * k, scale, kScaleBlock, bytes + i * to.row_size());
      continue;
    }
    quantize_e4m3(from + i * k, scale, kScaleBlock, line.data());
    for (std::int64_t j = 0; j < kScaleBlock; ++j) bytes[j * to.row_size() + i] = line[static_cast<std::size_t>(j)];
  }
}

// Writes one form of a weight, whose first output is `out`.
void write_weight(const KernelCall& call, std::size_t out, bool transposed) {
  const TensorView& weight = call.in(0);
  const TensorView& scales = call.out(out + QuantizeWeightOut::scale);
  std::fill_n(scales.as<float>(), scales.elements(), 1.0F);
  const std::int64_t across = weight.row_size() / kScaleBlock;
  parallel_for(weight.rows() / kScaleBlock * across, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      quantize_block(weight, block / across * kScaleBlock, block % across * kScaleBlock, transposed,
                     call.out(out + QuantizeWeightOut::weight), scales);
    }
  });
}

void quantize_weight_forward(const KernelCall& call) {
  const auto& forms = call.attributes_as<QuantizeWeightAttributes>();
  if (forms.plain) write_weight(call, 0, false);
  if (forms.transposed) write_weight(call, forms.transposed_out(), true);
}

}  // namespace

void quantize_columns(const BFloat16* from, std::int64_t filled, std::int64_t row_block, std::int64_t column_block,
                      const QuantizedViews& to) {
  const std::int64_t first = row_block * kScaleBlock;
  const std::int64_t rows = std::min(kScaleBlock, to.capacity - first);
  const std::int64_t column = column_block * kScaleBlock;
  std::array<BFloat16, kScaleBlock * kScaleBlock> transposed;  // [columns, rows]
  for (std::int64_t row = 0; row < filled; ++row) {
    const BFloat16* values = from + row * to.k + column;
    for (std::int64_t i = 0; i < kScaleBlock; ++i) transposed[static_cast<std::size_t>(i * rows + row)] = values[i];
  }
  std::uint32_t of_block = 0;
  std::array<std::uint32_t, kScaleBlock> magnitudes;
  for (std::int64_t i = 0; i < kScaleBlock; ++i) {
    BFloat16* values = transposed.data() + i * rows;
    std::fill(values + filled, values + rows, BFloat16());
    magnitudes[static_cast<std::size_t>(i)] = magnitude_of(values, rows);
    of_block = std::max(of_block, magnitudes[static_cast<std::size_t>(i)]);
  }
  const bool blocks = to.column_scale_stride > 0;
  if (blocks) to.column_scale[column_block * to.column_scale_stride + row_block] = scale_of(of_block);
  for (std::int64_t i = 0; i < kScaleBlock; ++i) {
    const float scale = scale_of(blocks ? of_block : magnitudes[static_cast<std::size_t>(i)]);
    if (!blocks) to.column_scale[row_block * to.k + column + i] = scale;
    quantize_e4m3(transposed.data() + i * rows, scale, rows, to.columns + (column + i) * to.capacity + first);
  }
}

void quantize_rows(const BFloat16* x, std::int64_t used, const QuantizedViews& to) {
  parallel_for(to.capacity, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) quantize_row(row < used ? x + row * to.k : nullptr, row, to);
  });
  if (to.columns == nullptr) return;
  const std::int64_t across = to.k / kScaleBlock;
  if (to.column_scale_stride > 0) std::fill_n(to.column_scale, across * to.column_scale_stride, 1.0F);
  parallel_for(scale_blocks(to.capacity) * across, 2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t first = tile / across * kScaleBlock;
      const std::int64_t filled = std::clamp<std::int64_t>(used - first, 0, std::min(kScaleBlock, to.capacity - first));
      quantize_columns(x + first * to.k, filled, tile / across, tile % across, to);
    }
  });
}

void widen_quantized_rows(const TensorView& bytes, const TensorView& scale, std::int64_t rows, BFloat16* to) {
  const std::int64_t columns = bytes.row_size();
  const float* scales = scale.as<float>();
  const auto* from = bytes.as<std::uint8_t>();
  for_rows(rows, columns, [&](std::int64_t row) {
    for (std::int64_t at = 0; at < columns; at += kScaleBlock) {
      dequantize_e4m3(from + row * columns + at, scales[at / kScaleBlock * scale.row_size() + row],
                      std::min(kScaleBlock, columns - at), to + row * columns + at);
    }
  });
}

void widen_quantized_blocks(const TensorView& bytes, const TensorView& scale, BFloat16* to) {
  const std::int64_t columns = bytes.row_size();
  const auto* from = bytes.as<std::uint8_t>();
  for_rows(bytes.rows(), columns, [&](std::int64_t row) {
    const float* scales = scale.as<float>() + row / kScaleBlock * scale.row_size();
    dequantize_e4m3_row(from + row * columns, scales, 0, columns, to + row * columns);
  });
}

void register_quantize_cpu(KernelRegistry& registry) {
  registry.add("quantize", DeviceKind::kCpu, {quantize_forward, {}});
  registry.add("quantize_weight", DeviceKind::kCpu, {quantize_weight_forward, {}});
  registry.add("quantize_weight_into", DeviceKind::kCpu, {quantize_weight_forward, {}});
}

}  // namespace hone
