#include "model/fp8_weights.h"

#include <algorithm>
#include <string>
#include <vector>

#include "backend/fp8_fragments.h"
#include "core/error.h"
#include "core/float8.h"
#include "model/fp8_model.h"
#include "model/transpose.h"
#include "model/weight_tensors.h"

namespace hone {
namespace {

constexpr std::int64_t kPieceRows = 32 * kScaleBlock;

// Writes scales of rows [row, row + rows) of a block. `scale_at` returns the scales of a row of the range.
template <class ScaleAt>
void store_scales(const WeightSpec& spec, std::int64_t row, std::int64_t rows, TensorStore& weights,
                  const ScaleAt& scale_at) {
  const std::int64_t each = fp8_scale_rows(spec);
  const auto across = static_cast<std::size_t>(scale_blocks(spec.shape[1]));
  HONE_ASSERT(row % each == 0, spec.name, ": rows from ", row, ", scales of ", each, " rows");
  std::vector<float> scales;
  for (std::int64_t at = 0; at < rows; at += each) {
    const std::span<const float> from(scale_at(at), across);
    scales.insert(scales.end(), from.begin(), from.end());
  }
  weights.upload(fp8_scale_name(spec.name), static_cast<std::size_t>(row / each) * across * sizeof(float),
                 std::as_bytes(std::span(scales)));
}

// Loads a whole tensor that is stored in FP8, transposed.
void load_transposed(const CheckpointTensor& tensor, const PartSlice& slice, const ScaledTensor& stored,
                     TensorStore& weights) {
  const WeightSpec& spec = *slice.spec;
  const auto count = static_cast<std::size_t>(slice.elements());
  std::vector<std::uint8_t> bytes(count);
  std::vector<std::uint8_t> turned(count);
  read_fp8_bytes(stored, slice.first, bytes);
  transpose(std::as_bytes(std::span(bytes)), tensor.columns, tensor.rows, 1, std::as_writable_bytes(std::span(turned)));
  upload_fp8_rows(spec, slice.part->row, turned, weights);
  const std::vector<float> scales = read_scales(stored);  // [blocks of columns, blocks of rows]
  const std::int64_t down = scale_blocks(tensor.rows);
  std::vector<float> row(static_cast<std::size_t>(scale_blocks(tensor.columns)));
  store_scales(spec, slice.part->row, slice.part->rows, weights, [&](std::int64_t at) {
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = scales[i * static_cast<std::size_t>(down) + static_cast<std::size_t>(at / kScaleBlock)];
    return row.data();
  });
}

// Loads a part that is stored in FP8 in the orientation of blocks.
void load_as_stored(const PartSlice& slice, const ScaledTensor& stored, TensorStore& weights) {
  const WeightSpec& spec = *slice.spec;
  const std::int64_t columns = spec.shape[1];
  const std::int64_t first_row = slice.first / columns;
  std::vector<std::uint8_t> bytes;
  for (std::int64_t row = 0; row < slice.part->rows; row += kPieceRows) {
    const std::int64_t rows = std::min(kPieceRows, slice.part->rows - row);
    bytes.resize(static_cast<std::size_t>(rows * columns));
    read_fp8_bytes(stored, (first_row + row) * columns, bytes);
    upload_fp8_rows(spec, slice.part->row + row, bytes, weights);
  }
  const std::vector<float> scales = read_scales(stored);
  store_scales(spec, slice.part->row, slice.part->rows, weights, [&](std::int64_t row) {
    return scales.data() + (first_row + row) / kScaleBlock * scale_blocks(columns);
  });
}

}  // namespace

void upload_fp8_rows(const WeightSpec& spec, std::int64_t row, std::span<const std::uint8_t> bytes,
                     TensorStore& weights) {
  const std::int64_t columns = spec.shape[1];
  const auto begin = static_cast<std::size_t>(row * columns);
  if (!fp8_block_in_fragments(spec, weights.device().kind())) {
    return weights.upload(spec.name, begin, std::as_bytes(bytes));
  }
  HONE_ASSERT(row % kFragmentRows == 0, spec.name, ": rows from ", row);
  std::vector<std::uint8_t> fragments(bytes.size());
  fp8_to_fragments(bytes, columns, fragments);
  weights.upload(spec.name, begin, std::as_bytes(std::span(fragments)));
}

void store_quantized(const WeightSpec& spec, std::string_view name, std::int64_t row, std::span<const BFloat16> values,
                     TensorStore& weights) {
  const std::int64_t columns = spec.shape[1];
  const std::int64_t rows = static_cast<std::int64_t>(values.size()) / columns;
  const std::int64_t across = scale_blocks(columns);
  std::vector<std::uint8_t> bytes(values.size());
  std::vector<float> scales(static_cast<std::size_t>(scale_blocks(rows) * across));
  if (!quantize_e4m3_blocks(values.data(), rows, columns, bytes.data(), scales.data())) {
    throw Error(name,
                text_of("has a value that is not finite or above ", kE4m3Max * kMostScale,
                        ", which cannot be quantized to FP8"),
                "use its weights in bfloat16: --quantization none");
  }
  upload_fp8_rows(spec, row, bytes, weights);
  store_scales(spec, row, rows, weights, [&](std::int64_t at) { return scales.data() + at / kScaleBlock * across; });
}

void store_quantized_parts(const WeightSpec& spec, std::span<const BFloat16> values, TensorStore& weights) {
  const std::int64_t columns = spec.shape[1];
  for (const WeightPart& part : spec.parts) {
    for (std::int64_t row = 0; row < part.rows; row += kPieceRows) {
      const std::int64_t rows = std::min(kPieceRows, part.rows - row);
      store_quantized(spec, part.name, part.row + row,
                      values.subspan(static_cast<std::size_t>((part.row + row) * columns),
                                     static_cast<std::size_t>(rows * columns)),
                      weights);
    }
  }
}

void load_fp8_part(const CheckpointTensor& tensor, const PartSlice& slice, const ScaledTensor& stored,
                   TensorStore& weights) {
  if (stored.scales != nullptr && !tensor.transposed) return load_as_stored(slice, stored, weights);
  if (stored.scales != nullptr && tensor.slices.size() == 1) return load_transposed(tensor, slice, stored, weights);
  const WeightSpec& spec = *slice.spec;
  const std::int64_t columns = spec.shape[1];
  const std::int64_t piece = tensor.transposed ? slice.part->rows : kPieceRows;
  std::vector<BFloat16> values;
  for (std::int64_t row = 0; row < slice.part->rows; row += piece) {
    const std::int64_t rows = std::min(piece, slice.part->rows - row);
    values.resize(static_cast<std::size_t>(rows * columns));
    const auto bytes = std::as_writable_bytes(std::span(values));
    if (tensor.transposed) {
      read_part(tensor, slice, stored, DType::kBf16, bytes);
    } else {
      read_as(stored, DType::kBf16, slice.first + row * columns, bytes);
    }
    store_quantized(spec, slice.part->name, slice.part->row + row, values, weights);
  }
}

}  // namespace hone
