// The interface of model families: configuration, weights named as in checkpoints, and the forward pass.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "model/batch.h"
#include "model/weight_spec.h"
#include "program/program.h"

namespace hone {

// The sizes that the engine, the planner and the trainer need of every model.
struct ModelShape {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t latent_width = 0;  // numbers of a token's latent row, if attention computes keys and values from one
  std::int64_t max_position_embeddings = 0;
  bool learned_positions = false;  // positions are a learned table of max_position_embeddings rows
};

// Throws Error if `length` exceeds max_position_embeddings: learned positions end there, and the model has never seen
// rotary positions beyond it. (A configuration whose rope scaling reaches further has a larger
// max_position_embeddings.) vLLM rejects such sequences as well. `where` is the option that requested the length; `fix`
// is the suggested fix, by default the largest possible length.
void check_positions(const ModelShape& shape, std::int64_t length, std::string_view where, std::string_view fix = {});

// Returns the name of a weight of a layer: "layers.3.attention.qkv".
[[nodiscard]] std::string layer_name(std::int64_t layer, std::string_view rest);

// Declares a model's weights in a program that is being traced. Weights are declared in f32 unless their spec fixes a
// type; the precision pass changes f32 to the model's dtype.
class WeightBinder {
 public:
  // specs: Model::traced_weights()
  WeightBinder(Program& program, const std::vector<WeightSpec>& specs, bool trainable);
  // Returns the weight of that name, declared on first use. Throws Defect if no spec has the name.
  Tensor operator()(std::string_view name);

 private:
  Program& program_;
  const std::vector<WeightSpec>& specs_;
  bool trainable_;
};

class LoraModel;
class StageModel;

// Settings of a model's training in addition to the token loss. Unset values are those of config.json, or off.
struct ModelTraining {
  std::optional<bool> output_router_logits;  // adds the loss that balances a router, as transformers does
  std::optional<double> router_aux_loss_coef;
  double aux_loss_alpha = 0;     // coefficient of the sequence-wise loss that balances a router (DeepSeek)
  double bias_update_speed = 0;  // change of a router's biases by an optimizer step; 0: they are constant
  double mtp_loss_weight = 0;    // of the loss of the layer for multi-token prediction; 0: the layer is left out
};

// The use for which a program was traced.
struct TraceUse {
  bool trainable = false;
  bool dropout = false;
  bool adapter = true;  // false: the base model of one with an adapter
};

// A model of a certain configuration, without its weights' values.
class Model {
 public:
  virtual ~Model() = default;

  [[nodiscard]] virtual const ModelShape& shape() const = 0;
  // The content of config.json, for saving. Keys that hone does not use are preserved.
  [[nodiscard]] virtual const Json& config() const = 0;
  [[nodiscard]] virtual const std::vector<WeightSpec>& weights() const = 0;
  // The weights with which programs are traced, before adapted(); those of weights() that differ have another type.
  [[nodiscard]] virtual const std::vector<WeightSpec>& traced_weights() const { return weights(); }
  // The model of which this is what one rank of a tensor group (model/tensor_parallel_model.h) or one stage of a
  // pipeline (model/stage_model.h) has, otherwise this one. Model folders and parameter counts are those of the whole
  // model.
  [[nodiscard]] virtual const Model& whole() const { return *this; }
  // Traces the forward pass over `batch`. Returns the hidden states after the last norm, [tokens, hidden_size].
  [[nodiscard]] virtual Tensor forward(WeightBinder& weights, Batch& batch) const = 0;
  // Name of the output projection's weight, [vocab_size, hidden_size]. In a tied model this is the embedding.
  [[nodiscard]] virtual std::string_view head() const = 0;
  // Prefix of the tensor names that folders omit if they hold the base model without its language-model head class, for
  // example "transformer." of GPT-2.
  [[nodiscard]] virtual std::string_view base_prefix() const { return {}; }
  // Names the part of a checkpoint that the tensor belongs to and this model leaves out, for example "layers for
  // multi-token prediction"; empty if the tensor is one of the model's, or is unknown. Loading says once what it has
  // left out.
  [[nodiscard]] virtual std::string_view left_out(std::string_view tensor) const;
  // Settles what training computes besides the token loss, before weights are loaded or programs are traced: the
  // weights may change. Throws Error that names the key if the model has no use for it.
  virtual void prepare_training(const ModelTraining& training);
  // Makes the layer for multi-token prediction part of the model, as training with mtp_loss_weight does. Returns false
  // and changes nothing if config.json has none, or several.
  virtual bool keep_predictions() { return false; }
  // Returns true after keep_predictions().
  [[nodiscard]] virtual bool predicts_further() const { return false; }
  // Traces the layer for multi-token prediction over `batch`, as its layer after the last one. For the result of
  // forward() and the token i32 [tokens] that follows each row, returns hidden states [tokens, hidden_size] with which
  // the head predicts the token after that one. Throws Defect unless predicts_further().
  [[nodiscard]] virtual Tensor predict_further(WeightBinder& weights, Batch& batch, Tensor hidden, Tensor next) const;
  // Transforms a program traced from this model before any pass runs. LoraModel inserts its adapters here.
  [[nodiscard]] virtual Program adapted(Program program, const TraceUse& use) const;
  // Returns this object as LoraModel if it is a base model with an adapter (model/lora.h), otherwise null.
  [[nodiscard]] virtual const LoraModel* adapter() const { return nullptr; }
  // Returns this object as StageModel if it is a stage of a pipeline (model/stage_model.h), otherwise null.
  [[nodiscard]] virtual const StageModel* stage() const { return nullptr; }
};

// A model family, registered under the model_type of config.json.
class Family {
 public:
  virtual ~Family() = default;
  [[nodiscard]] virtual std::string_view model_type() const = 0;
  // Creates a model from config.json. Throws Error naming the key if the configuration is incomplete, contradictory or
  // not supported.
  [[nodiscard]] virtual std::unique_ptr<Model> create(const Json& config) const = 0;
};

// Returns true if routers of the model have biases that balance the load of experts.
[[nodiscard]] bool has_router_biases(const Model& model);

// Returns true if embedding and head are the same weight.
[[nodiscard]] bool has_tied_head(const Model& model);

// Numbers of parameters in all weights and in the trainable ones. Rows of a weight that belong to no part do not count.
[[nodiscard]] std::int64_t parameter_count(const Model& model);
[[nodiscard]] std::int64_t trained_parameter_count(const Model& model);

// Throw Error if a key is set that only some models have a use for: those with transformers' loss of routers, those
// with DeepSeek's routers, those with a layer for multi-token prediction.
void refuse_router_loss(const ModelTraining& training);
void refuse_sequence_balance(const ModelTraining& training);
void refuse_predictions(const ModelTraining& training);

}  // namespace hone
