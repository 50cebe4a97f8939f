// LoRA adapters (Hu et al., 2021) for any model family: the weights of the base model are frozen, and only the adapters
// next to them are trained. Options and file formats follow PEFT.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/lora_bias.h"
#include "model/module_choice.h"
#include "model/wrapped_model.h"
#include "ops/lora/lora.h"
#include "program/tensor_store.h"

namespace hone {

struct LoraConfig {
  std::int64_t r = 16;
  double alpha = 32;
  double dropout = 0;  // dropout probability of the adapters' inputs during training
  // Names of modules in the checkpoint ("q_proj", "model.layers.0.mlp.down_proj"). Alternatively a single entry:
  // "all-linear" (all linear layers except the head) or a regular expression that matches whole names
  // (model/name_pattern.h). Empty: q_proj and v_proj, or c_attn if the model has no q_proj.
  std::vector<std::string> target_modules;
  std::vector<std::string> modules_to_save;  // modules that are trained in full, as copies
  LoraBias bias = LoraBias::kNone;
  bool rslora = false;  // scale alpha / sqrt(r) instead of alpha / r
  bool dora = false;
  std::string base_name;               // base_model_name_or_path of adapter_config.json
  std::string base_revision = "main";  // revision of a base model from the hub

  [[nodiscard]] double scale() const;  // factor of B A
};

// A module or bias that is trained in full, as a copy of the base's weight.
struct SavedModule {
  // The uses in which the copy replaces the base's weight. A tied model uses one weight as embedding (lookup) and head.
  enum class Use : std::uint8_t { kEverywhere, kLookup, kHead };
  std::string block;  // name of the base's weight
  std::string copy;   // name of the trained copy
  Use use = Use::kEverywhere;
  LoraParts parts;  // rows of a bias that are trained; empty: all rows
};

// Prefix of module names in PEFT's files.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

// A base model with adapters: adapted() inserts them into traced programs. weights() are the frozen weights of the
// base, followed by those of the adapters. The latter are not part of a model folder; their parts are named as in
// PEFT's files.
class LoraModel final : public WrappedModel {
 public:
  // Throws Error that names lora_target_modules or lora_modules_to_save if a name matches no module of the model or a
  // module that cannot have an adapter.
  LoraModel(std::unique_ptr<Model> base, LoraConfig config);

  const std::vector<WeightSpec>& traced_weights() const override { return specs_; }
  Program adapted(Program program, const TraceUse& use) const override;
  const LoraModel* adapter() const override { return this; }

  [[nodiscard]] const LoraConfig& lora() const { return config_; }
  // The value of target_modules for adapter_config.json: the last names of the modules with adapters, sorted, or their
  // full names if the last names would also match modules without adapters.
  [[nodiscard]] std::vector<std::string> target_names() const;
  // The modules and biases that are trained in full.
  [[nodiscard]] const std::vector<SavedModule>& saved() const { return saved_; }
  // Returns true if the embedding has an adapter: A [vocab, r], B [hidden, r].
  [[nodiscard]] bool adapts_embedding() const { return adapts_embedding_; }

  // Names of the weights of a block's adapter: A, B and the DoRA magnitudes.
  [[nodiscard]] static std::string down_name(std::string_view block) { return std::string(block) + ".lora_A"; }
  [[nodiscard]] static std::string up_name(std::string_view block) { return std::string(block) + ".lora_B"; }
  [[nodiscard]] static std::string magnitude_name(std::string_view block) { return std::string(block) + ".magnitude"; }
  static constexpr const char* kEmbedding = "embedding";  // the block of the token embedding
  static constexpr const char* kEmbeddingDown = "embedding.lora_embedding_A";
  static constexpr const char* kEmbeddingUp = "embedding.lora_embedding_B";
  // Blocks of linear layers with adapters, and the rows of each block that have one. The head's entry is head(); in a
  // tied model that entry applies only to the use as a head, not to the embedding in the same block.
  [[nodiscard]] const std::map<std::string, LoraParts, std::less<>>& blocks() const { return blocks_; }

 private:
  void add_adapters();
  // Chooses the modules that get an adapter. Throws Error if an entry of target_modules matches no module.
  [[nodiscard]] ModuleSet choose() const;
  void add_saved();
  void add_biases();
  void save_copy(const WeightSpec& from, std::string copy, const std::string& part, SavedModule::Use use);
  void add_block(const WeightSpec& block, const std::vector<WeightPart>& parts);
  void add_embedding(const WeightSpec& table);

  LoraConfig config_;
  std::map<std::string, LoraParts, std::less<>> blocks_;
  std::vector<SavedModule> saved_;
  bool adapts_embedding_ = false;
  std::vector<std::string> targets_;  // full names of the modules with adapters
};

// Initializes a new adapter as PEFT does. Linear layers: A uniform in +-1/sqrt(columns) (kaiming_uniform with a =
// sqrt(5)), B zero. Embedding: A zero, B standard normal. DoRA magnitudes are the norms of the base's rows; copies
// equal the base's weights. Each random number depends only on the seed, the tensor's name and its index. Weights that
// the store lacks, those of other stages of a pipeline, are left out, and copies whose base's weight it lacks. model: a
// LoraModel, or what a rank has of one; then magnitudes of blocks of which the rank has some columns are left out.
void initialize_adapter(const Model& model, TensorStore& weights, std::uint64_t seed);
// Makes a block's magnitudes in `weights` the norms of the base's rows, so that DoRA starts as the base model.
void initialize_magnitudes(const TensorStore& base, const std::string& block, TensorStore& weights);

}  // namespace hone
