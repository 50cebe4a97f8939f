#include "train/lora_options.h"

#include <filesystem>
#include <utility>

#include "core/log.h"
#include "core/strings.h"
#include "model/lora.h"
#include "train/options.h"

namespace hone {

void check_lora(const LoraOptions& options, const OptionInput& input) {
  if (options.use_peft) return;
  for (const char* key : {"lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save",
                          "lora_task_type", "lora_bias", "use_rslora", "use_dora"}) {
    if (input.was_set(key)) log_once(text_of(input.place_of(key), " has no effect: use_peft is not set"));
  }
}

std::unique_ptr<Model> with_adapter(std::unique_ptr<Model> model, const LoraOptions& options,
                                    const ModelOptions& base) {
  if (!options.use_peft) return model;
  const std::string& name = base.model_name_or_path;
  const bool is_local = std::filesystem::is_directory(name);
  LoraConfig config{.r = options.lora_r,
                    .alpha = options.lora_alpha,
                    .dropout = options.lora_dropout,
                    .target_modules = options.lora_target_modules,
                    .modules_to_save = options.lora_modules_to_save,
                    .bias = options.lora_bias,
                    .rslora = options.use_rslora,
                    .dora = options.use_dora,
                    .base_name = is_local ? std::filesystem::canonical(name).string() : name,
                    .base_revision = base.model_revision};
  return std::make_unique<LoraModel>(std::move(model), std::move(config));
}

std::string parameters_text(const Model& model) {
  const std::int64_t trained = trained_parameter_count(model);
  const std::int64_t all = parameter_count(model);
  const std::string text = format_count(all) + " parameters";
  return trained == all ? text : text_of(text, ", ", format_count(trained), " of them trained");
}

}  // namespace hone
