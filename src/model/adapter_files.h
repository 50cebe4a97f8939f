// Saves and loads LoRA adapters in PEFT's file format.
#pragma once

#include <filesystem>

#include "model/lora.h"

namespace hone {

// Writes adapter_config.json, adapter_model.safetensors and, unless it is null, `generation_config` into `folder`,
// which is created if needed.
void save_adapter(const std::filesystem::path& folder, const LoraModel& model, const TensorStore& weights,
                  const Json* generation_config);

// Loads an adapter of the same model that save_adapter() wrote. Throws Error if the folder has no adapter, or if a
// tensor is missing or has another shape.
void load_adapter(const std::filesystem::path& folder, const LoraModel& model, TensorStore& weights);

}  // namespace hone
