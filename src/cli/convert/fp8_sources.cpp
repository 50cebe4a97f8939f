#include "cli/convert/fp8_sources.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "core/block_scales.h"
#include "core/error.h"
#include "core/float8.h"
#include "model/expert_layout.h"
#include "model/weight_layout.h"

namespace hone {

// The matrix that was quantized last.
struct Fp8Conversion::Quantized {
  std::string name;
  std::vector<std::uint8_t> bytes;
  std::vector<float> scales;

  void quantize(const StoredTensor& tensor) {
    if (tensor.name == name) return;
    name.clear();
    const auto count = static_cast<std::size_t>(tensor.element_count());
    std::vector<BFloat16> values(count);
    read_as(tensor, DType::kBf16, 0, std::as_writable_bytes(std::span(values)));
    bytes.resize(count);
    scales.resize(static_cast<std::size_t>(scale_blocks(tensor.shape[0]) * scale_blocks(tensor.shape[1])));
    if (!quantize_e4m3_blocks(values.data(), tensor.shape[0], tensor.shape[1], bytes.data(), scales.data())) {
      throw Error(tensor.file,
                  text_of("tensor ", tensor.name, " has a value that is not finite or above ", kE4m3Max * kMostScale,
                          ", which cannot be quantized to FP8"),
                  "leave out --quantization fp8");
    }
    name = tensor.name;
  }
};

TensorSource converted_from_fp8(const ScaledTensor& tensor, DType dtype, std::vector<std::byte>& buffer) {
  return {tensor.values->name, dtype, tensor.values->shape,
          [tensor, dtype, &buffer](std::uint64_t begin, std::size_t most) {
            buffer.resize(most);
            read_as(tensor, dtype, static_cast<std::int64_t>(begin / size_of(dtype)), buffer);
            return std::span<const std::byte>(buffer);
          }};
}

std::vector<TensorSource> kept_in_fp8(const ScaledTensor& tensor) {
  TensorSource values = tensor_source(tensor.values->name, DType::kU8, tensor.values->shape, tensor.values->bytes);
  values.written_as = StoredType::kF8E4m3;
  const StoredTensor& scales = *tensor.scales;
  return {std::move(values), tensor_source(scales.name, required_dtype_of(scales.type), scales.shape, scales.bytes)};
}

Fp8Conversion::Fp8Conversion(const Model& model, const WeightFiles& files) : last_(std::make_shared<Quantized>()) {
  const std::string_view prefix = model.base_prefix();
  for (const WeightSpec& spec : model.weights()) {
    for (std::string& module : expert_modules(spec)) {
      if (std::ranges::find(kept_, module) == kept_.end()) kept_.push_back(std::move(module));
    }
  }
  const std::vector<WeightSpec> specs = specs_in_folder(model, files);
  for (const CheckpointTensor& tensor : checkpoint_tensors(specs, true)) {
    if (tensor.slices.front().spec->kind == WeightKind::expert) continue;
    const bool taken = tensor.slices.front().spec->kind == WeightKind::linear;
    std::vector<std::string> names{tensor.name};
    if (!prefix.empty() && tensor.name.starts_with(prefix)) names.push_back(tensor.name.substr(prefix.size()));
    for (const std::string& name : names) {
      const StoredTensor* stored = files.find(name);
      if (stored == nullptr || stored->shape.size() != 2) continue;
      if (taken && !tensor.transposed) {
        names_.insert(name);
      } else if (name.ends_with(".weight")) {
        kept_.push_back(name.substr(0, name.size() - std::string_view(".weight").size()));
      }
    }
  }
}

std::vector<TensorSource> Fp8Conversion::sources(const StoredTensor& tensor) const {
  const std::vector<std::int64_t> blocks{scale_blocks(tensor.shape[0]), scale_blocks(tensor.shape[1])};
  const auto source = [&](std::string name, DType dtype, const std::vector<std::int64_t>& shape, auto member) {
    return TensorSource{std::move(name), dtype, shape,
                        [last = last_, &tensor, member](std::uint64_t begin, std::size_t most) {
                          last->quantize(tensor);
                          return std::as_bytes(std::span((*last).*member)).subspan(begin, most);
                        }};
  };
  std::vector<TensorSource> made{
      source(tensor.name, DType::kU8, tensor.shape, &Quantized::bytes),
      source(tensor.name + std::string(kScaleSuffix), DType::kF32, blocks, &Quantized::scales)};
  made.front().written_as = StoredType::kF8E4m3;
  return made;
}

}  // namespace hone
