// The contract of a model family: configuration, weights under the checkpoint's names, forward pass.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "model/batch.h"
#include "model/weight_spec.h"
#include "program/program.h"

namespace hone {

// What the engine, the planner and the trainer need to know of any model.
struct ModelShape {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  bool learned_positions = false;  // there are no more positions than max_position_embeddings
};

// Throws Error, beginning with `where`, the key that asks for it, for sequences longer than max_position_embeddings:
// learned positions end there, and rotary ones beyond it the model has never seen (a configuration whose rope scaling
// reaches further says so in max_position_embeddings). vLLM refuses them as well. `fix`: what to do; empty: where they
// end.
void check_positions(const ModelShape& shape, std::int64_t length, std::string_view where, std::string_view fix = {});

// Declares weights of the program under construction by the names of their specs. Types are those of f32; the precision
// pass changes them.
class WeightBinder {
 public:
  WeightBinder(Program& program, const std::vector<WeightSpec>& specs, bool trainable);
  Tensor operator()(std::string_view name);  // throws Defect where no spec has the name

 private:
  Program& program_;
  const std::vector<WeightSpec>& specs_;
  bool trainable_;
};

class LoraModel;

// What a program was traced for.
struct TraceUse {
  bool trainable = false;
  bool dropout = false;
};

// One configured model.
class Model {
 public:
  virtual ~Model() = default;

  [[nodiscard]] virtual const ModelShape& shape() const = 0;
  // config.json, for transformers to read; what hone does not know is kept as it came.
  [[nodiscard]] virtual const Json& config() const = 0;
  [[nodiscard]] virtual const std::vector<WeightSpec>& weights() const = 0;
  // Traces tokens -> hidden states after the last norm [tokens, hidden_size].
  [[nodiscard]] virtual Tensor forward(WeightBinder& weights, Batch& batch) const = 0;
  // The output projection [vocab_size, hidden_size].
  [[nodiscard]] virtual std::string_view head() const = 0;
  // What the checkpoint's names begin with where a folder holds the model without its head's class; such folders leave
  // it away.
  [[nodiscard]] virtual std::string_view base_prefix() const { return {}; }
  // What becomes of a program that was traced from it, before any pass: adapters are put in.
  [[nodiscard]] virtual Program adapted(Program program, const TraceUse& use) const;
  // Itself where it is a base model with an adapter (model/lora.h), else null.
  [[nodiscard]] virtual const LoraModel* adapter() const { return nullptr; }
};

// A family, found by model_type of config.json.
class Family {
 public:
  virtual ~Family() = default;
  [[nodiscard]] virtual std::string_view model_type() const = 0;
  // Throws Error naming the key where the configuration is incomplete, contradicts itself or asks for what hone has
  // not.
  [[nodiscard]] virtual std::unique_ptr<Model> create(const Json& config) const = 0;
};

// Whether the embedding's rows are the head's.
[[nodiscard]] bool has_tied_head(const Model& model);

// Elements of all weights, and of those that are trained: what their parts fill of them.
[[nodiscard]] std::int64_t parameter_count(const Model& model);
[[nodiscard]] std::int64_t trained_parameter_count(const Model& model);

}  // namespace hone
