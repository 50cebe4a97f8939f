#include "model/adapter_files.h"

#include <cmath>
#include <utility>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "model/weight_tensors.h"

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

}  // namespace

void save_adapter(const fs::path& folder, const LoraModel& model, const TensorStore& weights,
                  const Json* generation_config) {
  hone::create_directories(folder);
  write_safetensors(folder / kWeights, weight_sources(model.weights(), false, weights));
  write_json(folder / kConfig, config_of(model));
  if (generation_config != nullptr) write_json(folder / "generation_config.json", *generation_config);
}

void load_adapter(const fs::path& folder, const LoraModel& model, TensorStore& weights) {
  if (!is_file(folder / kConfig)) {
    throw Error(folder.string(), "holds no adapter, but use_peft is set", "start from scratch in another output_dir");
  }
  const SafetensorsFile file(folder / kWeights);
  // Rows that belong to no part keep their values.
  for (const CheckpointTensor& wanted : checkpoint_tensors(model.weights(), false)) {
    const StoredTensor& tensor = file.at(wanted.name);
    if (tensor.shape != wanted.shape) {
      throw Error(file.name(),
                  text_of("tensor ", wanted.name, " is ", shape_text(tensor.shape), ", the options require ",
                          shape_text(wanted.shape)),
                  "resume with the lora options that the run was started with");
    }
    for (const PartSlice& slice : wanted.slices) load_part(wanted, slice, tensor, weights);
  }
}

}  // namespace hone
