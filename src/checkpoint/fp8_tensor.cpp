#include "checkpoint/fp8_tensor.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/safetensors_header.h"
#include "core/error.h"
#include "core/float8.h"
#include "core/json_value.h"
#include "core/parallel.h"

namespace hone {
namespace {

std::int64_t columns_of(const StoredTensor& tensor) { return tensor.shape.back(); }
std::int64_t rows_of(const StoredTensor& tensor) { return tensor.shape[tensor.shape.size() - 2]; }

// Row of the scales of a row, counted over all matrices of a tensor [..., rows, columns].
std::int64_t scale_row(const StoredTensor& tensor, std::int64_t row) {
  const std::int64_t rows = rows_of(tensor);
  return row / rows * scale_blocks(rows) + row % rows / kScaleBlock;
}

}  // namespace

std::vector<std::int64_t> scales_shape(std::span<const std::int64_t> shape) {
  HONE_ASSERT(shape.size() >= 2, "scales of ", shape_text(shape));
  std::vector<std::int64_t> scales(shape.begin(), shape.end());
  for (std::size_t d = scales.size() - 2; d < scales.size(); ++d) scales[d] = scale_blocks(scales[d]);
  return scales;
}

ScaledTensor with_scales(const StoredTensor& tensor, const WeightFiles& files) {
  if (tensor.type != StoredType::kF8E4m3) return tensor;
  const std::string name = tensor.name + std::string(kScaleSuffix);
  const StoredTensor* scales = files.find(name);
  if (scales == nullptr) {
    throw Error(tensor.file,
                text_of("tensor ", quoted_name(tensor.name), " is F8_E4M3, but there is no tensor ", quoted_name(name),
                        " with its scales"),
                "a folder with weights of bfloat16, or with a scale for each block of 128 x 128");
  }
  if (tensor.shape.size() != 2 && tensor.shape.size() != 3) {
    throw Error(tensor.file, text_of("tensor ", quoted_name(tensor.name), " is F8_E4M3 ", shape_text(tensor.shape),
                                     "; hone reads matrices of this type, and matrices of experts in one tensor"));
  }
  const std::vector<std::int64_t> wanted = scales_shape(tensor.shape);
  if (scales->shape != wanted) {
    throw Error(scales->file, text_of("tensor ", quoted_name(name), " is ", shape_text(scales->shape), ", but ",
                                      shape_text(tensor.shape), " has ", shape_text(wanted), " blocks of 128 x 128"));
  }
  if (scales->type != StoredType::kF32 && scales->type != StoredType::kBf16) {
    throw Error(scales->file, text_of("tensor ", quoted_name(name), " is ", name_of(scales->type),
                                      "; hone reads scales of F32 or BF16"));
  }
  return {tensor, scales};
}

bool has_fp8(const WeightFiles& files) {
  for (const SafetensorsFile& file : files.files()) {
    for (const StoredTensor& tensor : file.tensors()) {
      if (tensor.type == StoredType::kF8E4m3) return true;
    }
  }
  return false;
}

bool are_fp8_scales(std::string_view name, const WeightFiles& files) {
  if (!name.ends_with(kScaleSuffix)) return false;
  const StoredTensor* values = files.find(name.substr(0, name.size() - kScaleSuffix.size()));
  return values != nullptr && values->type == StoredType::kF8E4m3;
}

void read_fp8_bytes(const ScaledTensor& tensor, std::int64_t first, std::span<std::uint8_t> out) {
  const auto count = static_cast<std::int64_t>(out.size());
  HONE_ASSERT(tensor.values->type == StoredType::kF8E4m3 && first >= 0 && count <= tensor.element_count() - first,
              tensor.values->name, ": elements ", first, " to ", first + count);
  if (count == 0) return;
  std::memcpy(out.data(), tensor.values->bytes.data() + first, out.size());
  if (!has_e4m3_nan(out)) return;
  throw Error(tensor.values->file,
              text_of("tensor ", quoted_name(tensor.values->name), " has a byte that is no number"),
              "the file is damaged, or the weights are not finite");
}

std::vector<float> read_scales(const ScaledTensor& tensor) {
  HONE_ASSERT(tensor.scales != nullptr, tensor.values->name, " has no scales");
  std::vector<float> scales = read_values<float>(*tensor.scales);
  for (const float scale : scales) {
    if (scale == 0 || (scale >= kLeastScale && scale <= kMostScale)) continue;
    throw Error(tensor.scales->file, text_of("tensor ", quoted_name(tensor.scales->name), " has a scale of ", scale,
                                             "; expected 0, or 2^-100 to 2^7"));
  }
  return scales;
}

void read_as(const ScaledTensor& tensor, DType wanted, std::int64_t first, std::span<std::byte> out) {
  if (tensor.scales == nullptr) return read_as(*tensor.values, wanted, first, out);
  const auto count = static_cast<std::int64_t>(out.size() / size_of(wanted));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  read_fp8_bytes(tensor, first, bytes);
  const std::vector<float> scales = read_scales(tensor);
  const std::int64_t columns = columns_of(*tensor.values);
  if (wanted != DType::kBf16 && wanted != DType::kF32) {
    throw Error(tensor.values->file, text_of("tensor ", quoted_name(tensor.values->name),
                                             " is F8_E4M3, which cannot be read as ", name_of(wanted)));
  }
  // Parts of rows, because a range may begin and end inside of a row.
  const std::int64_t first_row = columns == 0 ? 0 : first / columns;
  const std::int64_t rows = columns == 0 || count == 0 ? 0 : (first + count - 1) / columns + 1 - first_row;
  parallel_for(rows, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<BFloat16> values(static_cast<std::size_t>(columns));
    for (std::int64_t row = first_row + begin; row < first_row + end; ++row) {
      const std::int64_t from = std::max(row * columns, first) - row * columns;
      const std::int64_t size = std::min((row + 1) * columns, first + count) - row * columns - from;
      const std::int64_t at = row * columns + from - first;
      const float* scales_of_row = scales.data() + scale_row(*tensor.values, row) * scale_blocks(columns);
      dequantize_e4m3_row(bytes.data() + at, scales_of_row, from, size, values.data());
      if (wanted == DType::kBf16) {
        std::memcpy(out.data() + at * static_cast<std::int64_t>(sizeof(BFloat16)), values.data(),
                    static_cast<std::size_t>(size) * sizeof(BFloat16));
        continue;
      }
      for (std::int64_t i = 0; i < size; ++i) {
        const auto value = static_cast<float>(values[static_cast<std::size_t>(i)]);
        std::memcpy(out.data() + (at + i) * static_cast<std::int64_t>(sizeof(float)), &value, sizeof value);
      }
    }
  });
}

void check_quantization(const Json& config, const std::string& where) {
  const auto found = config.find(kQuantizationKey);
  if (found == config.end() || found->is_null()) return;
  const auto refuse = [&](std::string_view key, const Json& value, std::string_view known) {
    throw Error(where, text_of(kQuantizationKey, ": ", key, " is ", value.dump(), ", but hone reads ", known),
                "a folder with weights of bfloat16");
  };
  if (!found->is_object()) refuse("it", *found, "an object");
  const auto expect = [&](std::string_view key, const Json& wanted, bool required) {
    const Json value = found->value(std::string(key), Json());
    if (value.is_null() ? required : value != wanted) refuse(key, value, wanted.dump());
  };
  expect("quant_method", "fp8", true);
  expect("fmt", "e4m3", false);
  expect("activation_scheme", "dynamic", false);
  expect("weight_block_size", Json::array({kScaleBlock, kScaleBlock}), true);
}

Json fp8_quantization_config(const std::vector<std::string>& kept) {
  Json config{{"activation_scheme", "dynamic"},
              {"fmt", "e4m3"},
              {"quant_method", "fp8"},
              {"weight_block_size", Json::array({kScaleBlock, kScaleBlock})}};
  if (!kept.empty()) config["modules_to_not_convert"] = kept;
  return config;
}

}  // namespace hone
