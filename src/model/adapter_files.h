// An adapter's files, as PEFT writes and reads them.
#pragma once

#include <filesystem>

#include "model/lora.h"

namespace hone {

// Writes adapter_config.json and adapter_model.safetensors; `generation_config` (may be null) beside them.
void save_adapter(const std::filesystem::path& folder, const LoraModel& model, const TensorStore& weights,
                  const Json* generation_config);

// Reads what save_adapter wrote of the same model. Throws Error where a tensor is missing or has another shape.
void load_adapter(const std::filesystem::path& folder, const LoraModel& model, TensorStore& weights);

}  // namespace hone
