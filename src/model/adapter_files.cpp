#include "model/adapter_files.h"

#include <cmath>
#include <utility>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "model/transpose.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights = "adapter_model.safetensors";

Json config_of(const LoraModel& model) {
  const LoraConfig& lora = model.lora();
  Json saved = nullptr;
  if (!lora.modules_to_save.empty()) saved = lora.modules_to_save;
  const bool transposed = [&] {
    for (const WeightSpec& spec : model.base().weights()) {
      if (model.blocks().contains(spec.name) && spec.parts.at(0).transposed) return true;
    }
    return false;
  }();
  return {{"alpha_pattern", Json::object()},
          {"auto_mapping", nullptr},
          {"base_model_name_or_path", lora.base_name},
          {"bias", name_of(lora.bias)},
          {"fan_in_fan_out", transposed},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"layers_pattern", nullptr},
          {"layers_to_transform", nullptr},
          {"lora_alpha",
           lora.alpha == std::floor(lora.alpha) ? Json(static_cast<std::int64_t>(lora.alpha)) : Json(lora.alpha)},
          {"lora_dropout", lora.dropout},
          {"modules_to_save", saved},
          {"peft_type", "LORA"},
          {"r", lora.r},
          {"rank_pattern", Json::object()},
          {"revision", lora.base_revision == "main" ? Json(nullptr) : Json(lora.base_revision)},
          {"target_modules", model.target_names()},
          {"task_type", "CAUSAL_LM"},
          {"use_dora", lora.dora},
          {"use_rslora", lora.rslora}};
}

std::vector<std::int64_t> shape_of(const WeightSpec& spec, const WeightPart& part) {
  std::vector<std::int64_t> shape = spec.shape;
  shape[0] = part.rows;
  if (part.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

}  // namespace

void save_adapter(const fs::path& folder, const LoraModel& model, const TensorStore& weights,
                  const Json* generation_config) {
  hone::create_directories(folder);
  std::vector<TensorSource> sources;
  std::vector<std::byte> staging;
  std::vector<std::byte> transposed;
  for (const WeightSpec& spec : model.weights()) {
    if (spec.in_folder) continue;
    for (const WeightPart& part : spec.parts) {
      const Type& type = weights.type(spec.name);
      const std::size_t row_bytes = static_cast<std::size_t>(type.row_size()) * size_of(type.dtype);
      sources.push_back(
          {part.name, type.dtype, shape_of(spec, part), [&weights, &staging, &transposed, &spec, &part, row_bytes] {
             staging.resize(static_cast<std::size_t>(part.rows) * row_bytes);
             weights.device().download(staging.data(),
                                       weights.data(spec.name) + static_cast<std::size_t>(part.row) * row_bytes,
                                       staging.size());
             if (!part.transposed) return std::span<const std::byte>(staging);
             transposed.resize(staging.size());
             const Type& stored = weights.type(spec.name);
             transpose(staging, part.rows, stored.row_size(), size_of(stored.dtype), transposed);
             return std::span<const std::byte>(transposed);
           }});
    }
  }
  write_safetensors(folder / kWeights, sources);
  write_json(folder / kConfig, config_of(model));
  if (generation_config != nullptr) write_json(folder / "generation_config.json", *generation_config);
}

void load_adapter(const fs::path& folder, const LoraModel& model, TensorStore& weights) {
  if (!is_file(folder / kConfig)) {
    throw Error(folder.string(), "holds no adapter, and use_peft is set", "start anew in another output_dir");
  }
  const SafetensorsFile file(folder / kWeights);
  std::vector<std::byte> block;
  std::vector<std::byte> transposed;
  for (const WeightSpec& spec : model.weights()) {
    if (spec.in_folder) continue;
    const Type& type = weights.type(spec.name);
    // Rows of no part stay as they are.
    block = weights.download(spec.name);
    const std::size_t row_bytes = static_cast<std::size_t>(type.row_size()) * size_of(type.dtype);
    for (const WeightPart& part : spec.parts) {
      const StoredTensor& tensor = file.at(part.name);
      const std::vector<std::int64_t> shape = shape_of(spec, part);
      if (tensor.shape != shape) {
        throw Error(
            file.name(),
            text_of("tensor ", part.name, " is ", shape_text(tensor.shape), ", the options want ", shape_text(shape)),
            "resume with the lora options that it was begun with");
      }
      const std::span<std::byte> rows = std::span(block).subspan(static_cast<std::size_t>(part.row) * row_bytes,
                                                                 static_cast<std::size_t>(part.rows) * row_bytes);
      if (!part.transposed) {
        read_as(tensor, type.dtype, rows);
        continue;
      }
      transposed.resize(rows.size());
      read_as(tensor, type.dtype, transposed);
      transpose(transposed, shape[0], shape[1], size_of(type.dtype), rows);
    }
    weights.upload(spec.name, block);
  }
}

}  // namespace hone
