// LoRA options of the commands that train adapters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/options.h"
#include "model/lora_bias.h"

namespace hone {

class Model;
struct ModelOptions;

enum class LoraTask : std::uint8_t { kCausalLm };
template <>
inline constexpr EnumTable kEnumTable<LoraTask>{.names = "CAUSAL_LM"};

// Names and defaults are those of TRL's ModelConfig; lora_bias is PEFT's `bias`.
struct LoraOptions {
  bool use_peft = false;
  std::int64_t lora_r = 16;
  double lora_alpha = 32;
  double lora_dropout = 0.05;
  std::vector<std::string> lora_target_modules;
  std::vector<std::string> lora_modules_to_save;
  LoraTask lora_task_type = LoraTask::kCausalLm;
  LoraBias lora_bias = LoraBias::kNone;
  bool use_rslora = false;
  bool use_dora = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("LoRA");
    v("use_peft", use_peft, "Train a low-rank adapter; the weights of the model stay as they are");
    v("lora_r", lora_r, "Rank of the adapter", within(1, 4096));
    v("lora_alpha", lora_alpha, "The adapter is scaled by lora_alpha / lora_r", above(0));
    v("lora_dropout", lora_dropout, "Share of its inputs that an adapter of sft drops in training",
      {.least = 0, .most = 1, .most_excluded = true});
    v("lora_target_modules", lora_target_modules,
      "Linear layers that get an adapter, by name, or all-linear, or a regular expression that matches whole names "
      "(one "
      "with a comma as a list of one); unset: q_proj and v_proj, or c_attn");
    v("lora_modules_to_save", lora_modules_to_save, "Modules outside the layers that are trained whole, as copies");
    v("lora_task_type", lora_task_type, "Task type written to adapter_config.json");
    v("lora_bias", lora_bias,
      "Biases that are also trained: none, all, or those of layers with an adapter (PEFT's key bias)");
    v("use_rslora", use_rslora, "Scale by lora_alpha / sqrt(lora_r)");
    v("use_dora", use_dora, "Weight-decomposed adapters: magnitudes are also trained (DoRA)");
  }
};

// Logs which of the options were set but have no effect because use_peft is not set.
void check_lora(const LoraOptions& options, const OptionInput& input);

// Returns the model with a new adapter if use_peft is set, otherwise the model itself. Throws Error if the options do
// not fit the model.
[[nodiscard]] std::unique_ptr<Model> with_adapter(std::unique_ptr<Model> model, const LoraOptions& options,
                                                  const ModelOptions& base);
// Returns "12,345 parameters", or "12,345 parameters, 678 of them trained" if some are not trained.
[[nodiscard]] std::string parameters_text(const Model& model);

}  // namespace hone
