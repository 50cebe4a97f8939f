// GPT-2 (Radford et al., 2019): layer norms with biases before each block, learned positions, an MLP with GELU, biases
// on all projections and usually a tied head. Checkpoints store its projections as [in, out].
#include <cmath>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "model/config_reader.h"
#include "model/registry.h"
#include "ops/add/add.h"
#include "ops/embedding/embedding.h"
#include "ops/gelu/gelu.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"

namespace hone {
namespace {

constexpr std::int64_t kMostLayers = 10'000;
constexpr double kMostParameters = 1e15;  // keeps sums of sizes in bytes from overflowing

struct Gpt2Config {
  ModelShape shape;
  std::int64_t inner_size = 0;
  bool tie_word_embeddings = true;
  double layer_norm_epsilon = 1e-5;
  std::string gelu_form;  // attribute `approximate` of ops/gelu
  double embd_pdrop = 0, resid_pdrop = 0, attn_pdrop = 0;
};

double probability(const ConfigReader& config, std::string_view key) {
  const double value = config.number(key, 0.1);
  if (!(value >= 0 && value < 1)) {
    throw Error("config.json", text_of("'", key, "' is ", value, ", expected a number from 0 to below 1"));
  }
  return value;
}

void refuse_true(const ConfigReader& config, std::string_view key) {
  if (config.boolean(key, false)) throw Error("config.json", text_of("'", key, "': true is not supported by hone"));
}

std::string gelu_form(const std::string& activation) {
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") return "tanh";
  if (activation == "gelu") return "none";
  throw Error("config.json", text_of("activation_function '", activation, "' is not supported"),
              "gelu_new, gelu_pytorch_tanh or gelu");
}

Gpt2Config parse(const Json& json) {
  const ConfigReader config(json);
  Gpt2Config parsed;
  ModelShape& s = parsed.shape;
  // Each size has two spellings, because transformers accepts num_hidden_layers for n_layer and so on.
  const auto size = [&](std::string_view key, std::string_view other) {
    return config.has(key) || !config.has(other) ? config.positive(key) : config.positive(other);
  };
  s.vocab_size = config.positive("vocab_size");
  s.hidden_size = size("n_embd", "hidden_size");
  s.num_hidden_layers = size("n_layer", "num_hidden_layers");
  s.num_attention_heads = size("n_head", "num_attention_heads");
  s.num_key_value_heads = s.num_attention_heads;
  s.max_position_embeddings = size("n_positions", "max_position_embeddings");
  s.learned_positions = true;
  if (s.num_hidden_layers > kMostLayers) {
    throw Error("config.json", text_of("n_layer ", s.num_hidden_layers, " is more than ", kMostLayers));
  }
  if (s.hidden_size % s.num_attention_heads != 0) {
    throw Error("config.json", text_of("n_embd ", s.hidden_size, " is no multiple of n_head ", s.num_attention_heads));
  }
  s.head_dim = s.hidden_size / s.num_attention_heads;
  if (s.head_dim % 8 != 0 || s.head_dim > 256) {
    throw Error("config.json", text_of("n_embd / n_head is ", s.head_dim, ", which is not supported"),
                "a multiple of 8 up to 256");
  }
  parsed.inner_size = config.positive("n_inner", 4 * s.hidden_size);
  parsed.layer_norm_epsilon = config.number("layer_norm_epsilon", 1e-5);
  parsed.gelu_form = gelu_form(config.text("activation_function", "gelu_new"));
  parsed.embd_pdrop = probability(config, "embd_pdrop");
  parsed.resid_pdrop = probability(config, "resid_pdrop");
  parsed.attn_pdrop = probability(config, "attn_pdrop");
  if (!config.boolean("scale_attn_weights", true)) {
    throw Error("config.json", "'scale_attn_weights': false is not supported by hone");
  }
  parsed.tie_word_embeddings = config.boolean("tie_word_embeddings", true);
  refuse_true(config, "scale_attn_by_inverse_layer_idx");
  refuse_true(config, "add_cross_attention");
  return parsed;
}

class Gpt2 final : public Model {
 public:
  explicit Gpt2(const Json& json) : json_(json), config_(parse(json)) { describe_weights(); }

  const ModelShape& shape() const override { return config_.shape; }
  const Json& config() const override { return json_; }
  const std::vector<WeightSpec>& weights() const override { return specs_; }
  std::string_view head() const override { return config_.tie_word_embeddings ? "embedding" : "head"; }
  std::string_view base_prefix() const override { return kPrefix; }

  Tensor forward(WeightBinder& w, Batch& batch) const override {
    Program& program = batch.tokens.program();
    if (batch.training && config_.attn_pdrop > 0) {
      log_once(
          text_of("attn_pdrop ", config_.attn_pdrop, " has no effect: dropout of attention weights is not supported"));
    }
    Tensor x = [&] {
      const Scope scope(program, "embedding");
      const Tensor tokens = embedding(batch.tokens, w("embedding"));
      return batch.drop(tokens + embedding(batch.positions, w("positions")), config_.embd_pdrop);
    }();
    for (std::int64_t layer = 0; layer < config_.shape.num_hidden_layers; ++layer) {
      const Scope scope(program, text_of("layers.", layer));
      x = attention_block(w, batch, layer, x);
      x = mlp_block(w, batch, layer, x);
    }
    const Scope scope(program, "norm");
    return norm(w, x, "norm");
  }

 private:
  static constexpr std::string_view kPrefix = "transformer.";
  static constexpr PartAxis kByToken{ShardAxis::kVocabulary};

  Tensor norm(WeightBinder& w, Tensor x, const std::string& name) const {
    return layer_norm(x, w(name), w(name + "_bias"), {.epsilon = config_.layer_norm_epsilon});
  }
  static Tensor affine(WeightBinder& w, Tensor x, const std::string& name) {
    return linear(x, w(name), w(name + "_bias"));
  }

  // x + drop(out(attention(qkv(norm(x)))))
  Tensor attention_block(WeightBinder& w, Batch& batch, std::int64_t layer, Tensor x) const {
    const Scope scope(x.program(), "attention");
    const ModelShape& s = config_.shape;
    const Tensor qkv = affine(w, norm(w, x, layer_name(layer, "attention.norm")), layer_name(layer, "attention.qkv"));
    const Tensor o = batch.attend(layer, qkv,
                                  {.heads = s.num_attention_heads,
                                   .kv_heads = s.num_key_value_heads,
                                   .head_dim = s.head_dim,
                                   .scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim))});
    return x + batch.drop(affine(w, o, layer_name(layer, "attention.out")), config_.resid_pdrop);
  }

  // x + drop(down(gelu(up(norm(x)))))
  Tensor mlp_block(WeightBinder& w, Batch& batch, std::int64_t layer, Tensor x) const {
    const Scope scope(x.program(), "mlp");
    const Tensor up = affine(w, norm(w, x, layer_name(layer, "mlp.norm")), layer_name(layer, "mlp.up"));
    const Tensor y = affine(w, gelu(up, {.approximate = config_.gelu_form}), layer_name(layer, "mlp.down"));
    return x + batch.drop(y, config_.resid_pdrop);
  }

  void describe_weights() {
    const ModelShape& s = config_.shape;
    const std::int64_t hidden = s.hidden_size;
    describe_table("embedding", s.vocab_size, "wte", WeightKind::embedding, kByToken);
    describe_table("positions", s.max_position_embeddings, "wpe", WeightKind::table, {});
    // Projections into the residual stream are initialized smaller by 1 / sqrt(number of them): two in each layer.
    const double residual = 1.0 / std::sqrt(2.0 * static_cast<double>(s.num_hidden_layers));
    for (std::int64_t layer = 0; layer < s.num_hidden_layers; ++layer) {
      const std::string part = text_of("h.", layer, ".");
      describe_norm(layer_name(layer, "attention.norm"), part + "ln_1");
      describe_affine(layer_name(layer, "attention.qkv"), 3 * hidden, hidden, part + "attn.c_attn",
                      {ShardAxis::kHeads, 0, s.head_dim, 3}, 1.0);
      describe_affine(layer_name(layer, "attention.out"), hidden, hidden, part + "attn.c_proj",
                      {ShardAxis::kHeads, 1, s.head_dim}, residual);
      describe_norm(layer_name(layer, "mlp.norm"), part + "ln_2");
      describe_affine(layer_name(layer, "mlp.up"), config_.inner_size, hidden, part + "mlp.c_fc",
                      {ShardAxis::kInner, 0}, 1.0);
      describe_affine(layer_name(layer, "mlp.down"), hidden, config_.inner_size, part + "mlp.c_proj",
                      {ShardAxis::kInner, 1}, residual);
    }
    describe_norm("norm", "ln_f");
    if (!config_.tie_word_embeddings) {
      specs_.push_back({.name = "head",
                        .shape = {s.vocab_size, hidden},
                        .parts = {{.name = "lm_head.weight", .rows = s.vocab_size, .axes = {kByToken}}},
                        .kind = WeightKind::head});
    }
    double parameters = 0;
    for (const WeightSpec& spec : specs_) {
      double elements = 1;
      for (const std::int64_t size : spec.shape) elements *= static_cast<double>(size);
      parameters += elements;
    }
    if (parameters > kMostParameters) {
      throw Error("config.json", text_of("the model has ", parameters, " parameters; at most ", kMostParameters));
    }
  }

  static std::string stored_name(const std::string& part, std::string_view suffix) {
    return text_of(kPrefix, part, ".", suffix);
  }
  void describe_table(const std::string& name, std::int64_t rows, const std::string& part, WeightKind kind,
                      PartAxis axis) {
    specs_.push_back({.name = name,
                      .shape = {rows, config_.shape.hidden_size},
                      .parts = {{.name = stored_name(part, "weight"), .rows = rows, .axes = {axis}}},
                      .kind = kind});
  }
  void describe_vector(const std::string& name, std::int64_t size, std::string part, WeightKind kind,
                       Initializer initializer, std::vector<PartAxis> axes = {}) {
    specs_.push_back({.name = name,
                      .shape = {size},
                      .parts = {{.name = std::move(part), .rows = size, .axes = std::move(axes)}},
                      .kind = kind,
                      .initializer = initializer});
  }
  void describe_norm(const std::string& name, const std::string& part) {
    describe_vector(name, config_.shape.hidden_size, stored_name(part, "weight"), WeightKind::norm, Initializer::kOnes);
    describe_vector(name + "_bias", config_.shape.hidden_size, stored_name(part, "bias"), WeightKind::bias,
                    Initializer::kZeros);
  }
  void describe_affine(const std::string& name, std::int64_t out, std::int64_t in, const std::string& part,
                       PartAxis axis, double deviation) {
    WeightPart weight{.name = stored_name(part, "weight"), .rows = out, .transposed = true, .axes = {axis}};
    std::vector<PartAxis> along_rows = axes_along(weight, 0);
    specs_.push_back({.name = name,
                      .shape = {out, in},
                      .parts = {std::move(weight)},
                      .kind = WeightKind::linear,
                      .deviation = deviation});
    describe_vector(name + "_bias", out, stored_name(part, "bias"), WeightKind::bias, Initializer::kZeros,
                    std::move(along_rows));
  }

  Json json_;
  Gpt2Config config_;
  std::vector<WeightSpec> specs_;
};

class Gpt2Family final : public Family {
 public:
  std::string_view model_type() const override { return "gpt2"; }
  std::unique_ptr<Model> create(const Json& config) const override { return std::make_unique<Gpt2>(config); }
};

const Gpt2Family kGpt2Family;

}  // namespace

void register_gpt2(FamilyRegistry& registry) { registry.add(kGpt2Family); }

}  // namespace hone
