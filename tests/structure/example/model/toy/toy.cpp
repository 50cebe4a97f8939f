// A small model family: attention without positions, and an MLP with the square as its activation function.
#include <cmath>

#include "core/error.h"
#include "core/json_value.h"
#include "model/config_reader.h"
#include "model/registry.h"
#include "ops/add/add.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/toy_square/toy_square.h"

namespace hone {
namespace {

constexpr double kEpsilon = 1e-6;

std::string layer_name(std::int64_t layer, std::string_view rest) { return text_of("layers.", layer, ".", rest); }

class Toy final : public Model {
 public:
  explicit Toy(const Json& json) : json_(json) {
    const ConfigReader config(json_);
    shape_.vocab_size = config.positive("vocab_size");
    shape_.hidden_size = config.positive("hidden_size");
    shape_.num_hidden_layers = config.positive("num_hidden_layers");
    shape_.num_attention_heads = config.positive("num_attention_heads");
    shape_.num_key_value_heads = shape_.num_attention_heads;
    shape_.head_dim = config.positive("head_dim");
    shape_.max_position_embeddings = config.positive("max_position_embeddings");
    describe_weights();
  }

  const ModelShape& shape() const override { return shape_; }
  const Json& config() const override { return json_; }
  const std::vector<WeightSpec>& weights() const override { return specs_; }
  std::string_view head() const override { return "embedding"; }

  Tensor forward(WeightBinder& w, Batch& batch) const override {
    Program& program = batch.tokens.program();
    Tensor x = embedding(batch.tokens, w("embedding"));
    for (std::int64_t layer = 0; layer < shape_.num_hidden_layers; ++layer) {
      const Scope scope(program, text_of("layers.", layer));
      x = attention_block(w, batch, layer, x);
      x = mlp_block(w, layer, x);
    }
    return rms_norm(x, w("norm"), {.epsilon = kEpsilon});
  }

 private:
  Tensor attention_block(WeightBinder& w, Batch& batch, std::int64_t layer, Tensor x) const {
    const Scope scope(x.program(), "attention");
    const Tensor h = rms_norm(x, w(layer_name(layer, "attention.norm")), {.epsilon = kEpsilon});
    const Tensor qkv = linear(h, w(layer_name(layer, "attention.qkv")));
    const Tensor o = batch.attend(layer, qkv,
                                  {.heads = shape_.num_attention_heads,
                                   .kv_heads = shape_.num_key_value_heads,
                                   .head_dim = shape_.head_dim,
                                   .scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_dim))});
    return x + linear(o, w(layer_name(layer, "attention.out")));
  }

  Tensor mlp_block(WeightBinder& w, std::int64_t layer, Tensor x) const {
    const Scope scope(x.program(), "mlp");
    const Tensor h = rms_norm(x, w(layer_name(layer, "mlp.norm")), {.epsilon = kEpsilon});
    const Tensor up = toy_square(linear(h, w(layer_name(layer, "mlp.up"))), {.factor = 0.5});
    return x + linear(up, w(layer_name(layer, "mlp.down")));
  }

  // Declares the blocks that programs use and the checkpoint tensors that fill each of them.
  void describe_weights() {
    const std::int64_t hidden = shape_.hidden_size;
    const std::int64_t heads = shape_.num_attention_heads * shape_.head_dim;
    const auto matrix = [&](std::string name, std::int64_t rows, std::int64_t columns, std::string part, PartAxis axis,
                            WeightKind kind = WeightKind::linear) {
      specs_.push_back(
          {std::move(name), {rows, columns}, {{.name = std::move(part), .rows = rows, .axes = {axis}}}, kind});
    };
    const auto norm = [&](std::string name, std::string part) {
      specs_.push_back(
          {std::move(name), {hidden}, {{std::move(part), 0, hidden}}, WeightKind::norm, Initializer::kOnes});
    };
    matrix("embedding", shape_.vocab_size, hidden, "embed.weight", {ShardAxis::kVocabulary}, WeightKind::embedding);
    for (std::int64_t layer = 0; layer < shape_.num_hidden_layers; ++layer) {
      const std::string part = text_of("blocks.", layer, ".");
      norm(layer_name(layer, "attention.norm"), part + "norm1.weight");
      const std::vector<PartAxis> by_head{{ShardAxis::kHeads, 0, shape_.head_dim}};
      specs_.push_back({layer_name(layer, "attention.qkv"),
                        {3 * heads, hidden},
                        {{.name = part + "q.weight", .row = 0, .rows = heads, .axes = by_head},
                         {.name = part + "k.weight", .row = heads, .rows = heads, .axes = by_head},
                         {.name = part + "v.weight", .row = 2 * heads, .rows = heads, .axes = by_head}},
                        WeightKind::linear});
      matrix(layer_name(layer, "attention.out"), hidden, heads, part + "o.weight",
             {ShardAxis::kHeads, 1, shape_.head_dim});
      norm(layer_name(layer, "mlp.norm"), part + "norm2.weight");
      matrix(layer_name(layer, "mlp.up"), 2 * hidden, hidden, part + "up.weight", {ShardAxis::kInner, 0});
      matrix(layer_name(layer, "mlp.down"), hidden, 2 * hidden, part + "down.weight", {ShardAxis::kInner, 1});
    }
    norm("norm", "norm.weight");
  }

  Json json_;
  ModelShape shape_;
  std::vector<WeightSpec> specs_;
};

class ToyFamily final : public Family {
 public:
  std::string_view model_type() const override { return "toy"; }
  std::unique_ptr<Model> create(const Json& config) const override { return std::make_unique<Toy>(config); }
};

const ToyFamily kToyFamily;

}  // namespace

void register_toy(FamilyRegistry& registry) { registry.add(kToyFamily); }

}  // namespace hone
