#include "train/fp8_options.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "backend/gpu.h"
#include "core/block_scales.h"
#include "core/error.h"
#include "core/log.h"
#include "model/model.h"
#include "ops/quantize/quantize.h"

namespace hone {

void check_fp8(const Fp8Options& options, std::int64_t tensor_parallel_size, const OptionInput& input) {
  const auto check_part = [&](const char* key, std::optional<bool> value) {
    if (value == true && !options.fp8) log_once(text_of(input.place_of(key), " has no effect: fp8 is not set"));
    if (value == false && options.fp8) {
      throw Error(input.place_of(key), "is false, but a product in FP8 has both operands in e4m3",
                  text_of("remove ", key, ", or fp8"));
    }
  };
  check_part("fp8_weight_quant", options.fp8_weight_quant);
  check_part("fp8_activation_quant", options.fp8_activation_quant);
  if (options.fp8 && tensor_parallel_size > 1) {
    throw Error(input.place_of("fp8"),
                text_of("cannot be used with tensor_parallel_size ", tensor_parallel_size,
                        ", which divides linear layers over processes"),
                "set tensor_parallel_size: 1, or remove fp8");
  }
}

namespace {

// Rows of a matrix of a block: of one expert's, or all.
std::int64_t matrix_rows(const WeightSpec& spec) {
  if (spec.kind != WeightKind::expert) return spec.shape[0];
  const auto matrices =
      std::ranges::count_if(spec.parts, [](const WeightPart& part) { return part.alternative.row == 0; });
  return spec.shape[0] / std::max<std::int64_t>(matrices, 1);
}

}  // namespace

std::shared_ptr<const Fp8Weights> fp8_weights_of(const Fp8Options& options, const Model& model, DType dtype, bool gpu) {
  if (!options.fp8) return nullptr;
  if (dtype != DType::kBf16) {
    throw Error("fp8", text_of("is for weights of bfloat16, these are ", name_of(dtype)),
                "set torch_dtype: bfloat16, or remove fp8");
  }
  if (gpu) {
    if (const std::optional<std::string> obstacle = gpu_fp8_obstacle()) throw Error("fp8", *obstacle, "remove fp8");
  }
  auto weights = std::make_shared<Fp8Weights>();
  std::int64_t layers = 0;
  for (const WeightSpec& spec : model.weights()) {
    const bool multiplies = spec.kind == WeightKind::linear || spec.kind == WeightKind::expert;
    if (!multiplies || spec.shape.size() != 2 || spec.dtype) continue;
    ++layers;
    if (matrix_rows(spec) % kScaleBlock == 0 && spec.shape[1] % kScaleBlock == 0) weights->insert(spec.name);
  }
  const auto left = layers - static_cast<std::int64_t>(weights->size());
  if (weights->empty()) {
    throw Error("fp8",
                text_of("none of the ", layers, " linear layers has dimensions that are multiples of ", kScaleBlock),
                "remove fp8");
  }
  if (left > 0) {
    log_once(text_of("fp8: ", left, " of ", layers,
                     " linear layers stay in bfloat16, because their dimensions are no "
                     "multiples of ",
                     kScaleBlock));
  }
  return weights;
}

std::int64_t fp8_capacity(const Fp8Options& options, std::int64_t tokens, std::int64_t context_parallel_size) {
  if (!options.fp8) return tokens;
  const std::int64_t step = std::lcm(kScaleBlock, kQuantizedRows * context_parallel_size);
  return (tokens / step + (tokens % step != 0 ? 1 : 0)) * step;
}

}  // namespace hone
