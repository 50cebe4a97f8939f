// Low-rank adapters on any family: the base model's weights stay as they are, what is trained lies beside them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/lora_bias.h"
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
  LoraBias bias = LoraBias::none;
  bool rslora = false;  // scale alpha / sqrt(r), not alpha / r
  bool dora = false;
  std::string base_name;               // base_model_name_or_path of adapter_config.json
  std::string base_revision = "main";  // of a base from the hub

  [[nodiscard]] double scale() const;
};

// A module, or a bias, that is trained whole, as a copy.
struct SavedModule {
  // Where the copy stands in for the base's weight: embedding and head may share one.
  enum class Use : std::uint8_t { everywhere, lookup, head };
  std::string block;
  std::string copy;
  Use use = Use::everywhere;
  LoraParts parts;  // of a bias: rows that are trained; none: all
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
  [[nodiscard]] const std::vector<SavedModule>& saved() const { return saved_; }
  // Whether the embedding has an adapter: A [vocab, r], B [hidden, r].
  [[nodiscard]] bool adapts_embedding() const { return adapts_embedding_; }

  // Names of a block's adapter.
  [[nodiscard]] static std::string down_name(std::string_view block) { return std::string(block) + ".lora_A"; }
  [[nodiscard]] static std::string up_name(std::string_view block) { return std::string(block) + ".lora_B"; }
  [[nodiscard]] static std::string magnitude_name(std::string_view block) { return std::string(block) + ".magnitude"; }
  static constexpr const char* kEmbedding = "embedding";  // the block of tokens' embeddings
  static constexpr const char* kEmbeddingDown = "embedding.lora_embedding_A";
  static constexpr const char* kEmbeddingUp = "embedding.lora_embedding_B";
  // Blocks of linear layers with adapters, and which of their rows. That of the head is head(), whose adapter is the
  // head's alone where the embedding lies in the same block.
  [[nodiscard]] const std::map<std::string, LoraParts, std::less<>>& blocks() const { return blocks_; }

 private:
  void add_adapters();
  // The modules that get an adapter. Throws Error where an entry of target_modules is none's.
  [[nodiscard]] ModuleChoice choose() const;
  void add_saved();
  void add_biases();
  void save_copy(const WeightSpec& from, std::string copy, const std::string& part, SavedModule::Use use);
  void add_block(const WeightSpec& block, const std::vector<WeightPart>& parts);
  void add_embedding(const WeightSpec& table);

  std::unique_ptr<Model> base_;
  LoraConfig config_;
  std::vector<WeightSpec> specs_;
  std::map<std::string, LoraParts, std::less<>> blocks_;
  std::vector<SavedModule> saved_;
  bool adapts_embedding_ = false;
  std::vector<std::string> targets_;  // full names of modules
};

// Fills a new adapter: A uniform in +-1/sqrt(columns) (PEFT's kaiming_uniform with a = sqrt(5)), B zero; of an
// embedding A zero, B normal; magnitudes the norms of the base's rows, copies the base's weights. Each number depends
// on seed, the tensor's name and its index.
void initialize_adapter(const LoraModel& model, TensorStore& weights, std::uint64_t seed);

}  // namespace hone
