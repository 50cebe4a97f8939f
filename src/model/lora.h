// Low-rank adapters on any family: the base model's weights stay as they are, what is trained lies beside them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/module_choice.h"
#include "ops/lora/lora.h"
#include "program/tensor_store.h"

namespace hone {

struct LoraConfig {
  std::int64_t r = 16;
  double alpha = 32;
  double dropout = 0;  // of what enters an adapter, in training
  // Modules by the checkpoint's names ("q_proj", "model.layers.0.mlp.down_proj"); or one entry that names none:
  // "all-linear", which is all linear layers but the head, or a regular expression that whole names fit
  // (model/name_pattern.h). Empty: q_proj and v_proj, or c_attn.
  std::vector<std::string> target_modules;
  std::vector<std::string> modules_to_save;  // trained whole, as copies
  bool rslora = false;                       // scale alpha / sqrt(r), not alpha / r
  bool dora = false;
  std::string base_name;               // base_model_name_or_path of adapter_config.json
  std::string base_revision = "main";  // of a base from the hub

  [[nodiscard]] double scale() const;
};

// Names of PEFT's files: "base_model.model." + the module's.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

class LoraModel final : public Model {
 public:
  // Throws Error, naming lora_target_modules or lora_modules_to_save, where a name fits no module of the model, or one
  // that cannot have an adapter.
  LoraModel(std::unique_ptr<Model> base, LoraConfig config);

  const ModelShape& shape() const override { return base_->shape(); }
  const Json& config() const override { return base_->config(); }
  // The base's, frozen; then the adapters', which are in no model folder: their parts have the names of PEFT's files.
  const std::vector<WeightSpec>& weights() const override { return specs_; }
  Tensor forward(WeightBinder& weights, Batch& batch) const override { return base_->forward(weights, batch); }
  std::string_view head() const override { return base_->head(); }
  std::string_view base_prefix() const override { return base_->base_prefix(); }
  Program adapted(Program program, const TraceUse& use) const override;
  const LoraModel* adapter() const override { return this; }

  [[nodiscard]] const Model& base() const { return *base_; }
  [[nodiscard]] const LoraConfig& lora() const { return config_; }
  // The modules that have adapters, as their last names, sorted; and those that are saved whole.
  [[nodiscard]] std::vector<std::string> target_names() const;
  // Base weight -> the copy of it that is trained.
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& saved() const { return saved_; }

  // Names of a block's adapter.
  [[nodiscard]] static std::string down_name(std::string_view block) { return std::string(block) + ".lora_A"; }
  [[nodiscard]] static std::string up_name(std::string_view block) { return std::string(block) + ".lora_B"; }
  [[nodiscard]] static std::string magnitude_name(std::string_view block) { return std::string(block) + ".magnitude"; }
  // Blocks with adapters, and which of their rows.
  [[nodiscard]] const std::map<std::string, LoraParts, std::less<>>& blocks() const { return blocks_; }

 private:
  void add_adapters();
  // The linear layers that get an adapter. Throws Error where an entry of target_modules is none's.
  [[nodiscard]] ModuleChoice choose() const;
  void add_saved();
  void add_block(const WeightSpec& block, const std::vector<WeightPart>& parts);

  std::unique_ptr<Model> base_;
  LoraConfig config_;
  std::vector<WeightSpec> specs_;
  std::map<std::string, LoraParts, std::less<>> blocks_;
  std::map<std::string, std::string, std::less<>> saved_;
  std::vector<std::string> targets_;  // full names of modules
};

// Fills a new adapter: A uniform in +-1/sqrt(columns) (PEFT's kaiming_uniform with a = sqrt(5)), B zero, magnitudes the
// norms of the base's rows, copies the base's weights. Each number depends on seed, the tensor's name and its index.
void initialize_adapter(const LoraModel& model, TensorStore& weights, std::uint64_t seed);

}  // namespace hone
