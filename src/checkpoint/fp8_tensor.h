// Tensors in FP8 with a scale for each block, as DeepSeek publishes them: NAME is F8_E4M3 [rows, columns] and
// NAME_scale_inv has a scale for each 128 x 128 of it, f32 or bf16 [ceil(rows / 128), ceil(columns / 128)]. Despite the
// name, a weight is the number times its scale. A tensor [matrices, rows, columns] has the scales of each matrix, as
// transformers 5 has them for experts. config.json describes them in quantization_config, as transformers and vLLM read
// it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/weight_files.h"
#include "core/json.h"

namespace hone {

inline constexpr std::string_view kScaleSuffix = "_scale_inv";
inline constexpr std::string_view kQuantizationKey = "quantization_config";

// A stored tensor and, if it is in FP8, its scales.
struct ScaledTensor {
  const StoredTensor* values;
  const StoredTensor* scales = nullptr;  // null: the tensor is not in FP8

  ScaledTensor(const StoredTensor& tensor) : values(&tensor) {}  // NOLINT: a tensor that is not in FP8 is one
  ScaledTensor(const StoredTensor& tensor, const StoredTensor* its_scales) : values(&tensor), scales(its_scales) {}
  [[nodiscard]] std::int64_t element_count() const { return values->element_count(); }
};

// The shape of the scales of a tensor [..., rows, columns].
[[nodiscard]] std::vector<std::int64_t> scales_shape(std::span<const std::int64_t> shape);
// Returns a tensor of `files` with its scales. Throws Error if it is in FP8 and has no scales, or scales of another
// shape or type.
[[nodiscard]] ScaledTensor with_scales(const StoredTensor& tensor, const WeightFiles& files);
// Returns true if one of the tensors is in FP8.
[[nodiscard]] bool has_fp8(const WeightFiles& files);
// Returns true if `name` is that of the scales of an FP8 tensor.
[[nodiscard]] bool are_fp8_scales(std::string_view name, const WeightFiles& files);

// Reads elements as read_as() of plain tensors does. Those of FP8 become bf16(number x scale) first. Throws Error if a
// byte is no number or if a scale is neither 0 nor within the bounds of core/float8.h.
void read_as(const ScaledTensor& tensor, DType wanted, std::int64_t first, std::span<std::byte> out);
// Copies bytes of an FP8 tensor. Throws Error if one is no number.
void read_fp8_bytes(const ScaledTensor& tensor, std::int64_t first, std::span<std::uint8_t> out);
// Reads the scales of an FP8 tensor, row by row. Throws Error as read_as() does.
[[nodiscard]] std::vector<float> read_scales(const ScaledTensor& tensor);

// Throws Error if config.json (`where`) says that the weights are quantized in a way that hone does not read.
void check_quantization(const Json& config, const std::string& where);
// The quantization_config of weights that hone has quantized. `kept` are the modules that were not.
[[nodiscard]] Json fp8_quantization_config(const std::vector<std::string>& kept);

}  // namespace hone
