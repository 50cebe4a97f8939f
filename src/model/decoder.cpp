#include "model/decoder.h"

#include <cmath>

#include "core/error.h"
#include "core/json_value.h"
#include "model/config_reader.h"
#include "model/decoder_config.h"
#include "ops/add/add.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/qk_norm/qk_norm.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/swiglu/swiglu.h"

namespace hone {
namespace {

class Decoder final : public Model {
 public:
  Decoder(const Json& config, const DecoderOptions& options)
      : json_(config),
        config_(parse_decoder_config(config, options)),
        options_(options),
        mixture_(options.mixture.value_or(ExpertMixture{})) {
    describe_weights();
  }

  const ModelShape& shape() const override { return config_.shape; }
  const Json& config() const override { return json_; }
  const std::vector<WeightSpec>& weights() const override { return specs_; }
  std::string_view head() const override { return config_.tie_word_embeddings ? "embedding" : "head"; }

  void prepare_training(const ModelTraining& training) override {
    if (!options_.mixture) return Model::prepare_training(training);
    refuse_predictions(training);
    prepare_router_loss(mixture_, training);
  }

  Tensor forward(WeightBinder& w, Batch& batch) const override {
    Program& program = batch.tokens.program();
    const Tensor table = rope_table(batch.positions, config_.rope);
    Tensor x = [&] {
      const Scope scope(program, "embedding");
      return embedding(batch.tokens, w("embedding"));
    }();
    RouterFigures figures(mixture_, batch);
    for (std::int64_t layer = 0; layer < config_.shape.num_hidden_layers; ++layer) {
      const Scope scope(program, text_of("layers.", layer));
      x = attention_block(w, batch, layer, x, table);
      x = mlp_block(w, layer, x, figures);
    }
    figures.finish();
    const Scope scope(program, "norm");
    return rms_norm(x, w("norm"), {.epsilon = config_.rms_norm_eps});
  }

 private:
  // x + out(attention(rope(qkv(norm(x)))))
  Tensor attention_block(WeightBinder& w, Batch& batch, std::int64_t layer, Tensor x, Tensor table) const {
    const Scope scope(x.program(), "attention");
    const ModelShape& s = config_.shape;
    const Tensor h = rms_norm(x, w(layer_name(layer, "input_norm")), {.epsilon = config_.rms_norm_eps});
    const Tensor bias = options_.qkv_bias ? w(layer_name(layer, "attention.qkv_bias")) : Tensor();
    Tensor qkv = linear(h, w(layer_name(layer, "attention.qkv")), bias);
    if (options_.qk_norm) {
      qkv = qk_norm(qkv, w(layer_name(layer, "attention.q_norm")), w(layer_name(layer, "attention.k_norm")),
                    {.heads = s.num_attention_heads,
                     .kv_heads = s.num_key_value_heads,
                     .head_dim = s.head_dim,
                     .epsilon = config_.rms_norm_eps});
    }
    qkv = rope(qkv, table, {.heads = s.num_attention_heads + s.num_key_value_heads, .head_dim = s.head_dim});
    const Tensor o = batch.attend(layer, qkv,
                                  {.heads = s.num_attention_heads,
                                   .kv_heads = s.num_key_value_heads,
                                   .head_dim = s.head_dim,
                                   .scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim))});
    return x + linear(o, w(layer_name(layer, "attention.out")));
  }

  // x + down(swiglu(gate_up(norm(x)))), or x + mixture(norm(x))
  Tensor mlp_block(WeightBinder& w, std::int64_t layer, Tensor x, RouterFigures& figures) const {
    const Scope scope(x.program(), "mlp");
    const Tensor h = rms_norm(x, w(layer_name(layer, "mlp_norm")), {.epsilon = config_.rms_norm_eps});
    if (has_mixture(layer)) return x + mixture_forward(mixture_, layer, w, h, figures);
    return x + linear(swiglu(linear(h, w(layer_name(layer, "mlp.gate_up")))), w(layer_name(layer, "mlp.down")));
  }

  bool has_mixture(std::int64_t layer) const { return options_.mixture && mixture_.is_in(layer); }

  void describe_weights() {
    const ModelShape& s = config_.shape;
    const auto matrix = [&](std::string name, std::int64_t rows, std::int64_t columns, std::string part, PartAxis axis,
                            WeightKind kind = WeightKind::linear) {
      specs_.push_back(
          {std::move(name), {rows, columns}, {{.name = std::move(part), .rows = rows, .axes = {axis}}}, kind});
    };
    const auto norm = [&](std::string name, std::int64_t size, std::string part) {
      specs_.push_back({std::move(name), {size}, {{std::move(part), 0, size}}, WeightKind::norm, Initializer::kOnes});
    };
    const PartAxis by_token{ShardAxis::kVocabulary};
    matrix("embedding", s.vocab_size, s.hidden_size, "model.embed_tokens.weight", by_token, WeightKind::embedding);
    for (std::int64_t layer = 0; layer < s.num_hidden_layers; ++layer) describe_layer(layer, matrix, norm);
    norm("norm", s.hidden_size, "model.norm.weight");
    if (!config_.tie_word_embeddings) {
      matrix("head", s.vocab_size, s.hidden_size, "lm_head.weight", by_token, WeightKind::head);
    }
    check_parameter_count(specs_);
  }

  template <class Matrix, class Norm>
  void describe_layer(std::int64_t layer, const Matrix& matrix, const Norm& norm) {
    const ModelShape& s = config_.shape;
    const std::int64_t q = s.num_attention_heads * s.head_dim;
    const std::int64_t kv = s.num_key_value_heads * s.head_dim;
    const std::string part = text_of("model.layers.", layer, ".");
    const auto qkv_parts = [&](std::string_view suffix) {
      const std::vector<PartAxis> heads{{ShardAxis::kHeads, 0, s.head_dim}};
      return std::vector<WeightPart>{
          {.name = text_of(part, "self_attn.q_proj.", suffix), .row = 0, .rows = q, .axes = heads},
          {.name = text_of(part, "self_attn.k_proj.", suffix), .row = q, .rows = kv, .axes = heads},
          {.name = text_of(part, "self_attn.v_proj.", suffix), .row = q + kv, .rows = kv, .axes = heads}};
    };
    norm(layer_name(layer, "input_norm"), s.hidden_size, part + "input_layernorm.weight");
    specs_.push_back(
        {layer_name(layer, "attention.qkv"), {q + 2 * kv, s.hidden_size}, qkv_parts("weight"), WeightKind::linear});
    if (options_.qkv_bias) {
      specs_.push_back({layer_name(layer, "attention.qkv_bias"),
                        {q + 2 * kv},
                        qkv_parts("bias"),
                        WeightKind::bias,
                        Initializer::kZeros});
    }
    if (options_.qk_norm) {
      norm(layer_name(layer, "attention.q_norm"), s.head_dim, part + "self_attn.q_norm.weight");
      norm(layer_name(layer, "attention.k_norm"), s.head_dim, part + "self_attn.k_norm.weight");
    }
    matrix(layer_name(layer, "attention.out"), s.hidden_size, q, part + "self_attn.o_proj.weight",
           {ShardAxis::kHeads, 1, s.head_dim});
    norm(layer_name(layer, "mlp_norm"), s.hidden_size, part + "post_attention_layernorm.weight");
    if (has_mixture(layer)) return describe_mixture(mixture_, layer, s.hidden_size, specs_);
    describe_gated_mlp(layer_name(layer, "mlp."), part + "mlp.", s.hidden_size, config_.intermediate_size, specs_);
  }

  Json json_;
  DecoderConfig config_;
  DecoderOptions options_;
  ExpertMixture mixture_;  // without experts if the family has none
  std::vector<WeightSpec> specs_;
};

}  // namespace

DecoderConfig parse_decoder_config(const Json& json, const DecoderOptions& options) {
  const ConfigReader config(json);
  DecoderConfig parsed;
  ModelShape& s = parsed.shape;
  s.vocab_size = config.positive("vocab_size");
  s.hidden_size = config.positive("hidden_size");
  s.num_hidden_layers = parse_layers(config);
  s.num_attention_heads = config.positive("num_attention_heads");
  s.num_key_value_heads = config.positive("num_key_value_heads", s.num_attention_heads);
  s.max_position_embeddings = config.positive("max_position_embeddings", 2048);
  if (!config.has("head_dim") && s.hidden_size % s.num_attention_heads != 0) {
    throw Error("config.json", text_of("hidden_size ", s.hidden_size, " is no multiple of num_attention_heads ",
                                       s.num_attention_heads, " and there is no head_dim"));
  }
  s.head_dim = config.positive("head_dim", s.hidden_size / s.num_attention_heads);
  if (s.num_attention_heads % s.num_key_value_heads != 0) {
    throw Error("config.json", text_of("num_attention_heads ", s.num_attention_heads,
                                       " is no multiple of num_key_value_heads ", s.num_key_value_heads));
  }
  if (s.head_dim % 8 != 0 || s.head_dim > 256) {
    throw Error("config.json", text_of("head_dim ", s.head_dim, " is not supported"), "a multiple of 8 up to 256");
  }
  parsed.intermediate_size = config.positive("intermediate_size");
  parsed.rms_norm_eps = config.number("rms_norm_eps", options.default_epsilon);
  parsed.tie_word_embeddings = config.boolean("tie_word_embeddings", options.default_tied);
  parsed.rope = parse_rope(config, s.head_dim, options.default_theta);
  if (const std::string activation = config.text("hidden_act", "silu"); activation != "silu") {
    throw Error("config.json", text_of("hidden_act '", activation, "' is not supported"), "silu");
  }
  if (!options.qkv_bias) config.require("attention_bias", false);
  config.require("mlp_bias", false);
  config.require("use_sliding_window", false);
  return parsed;
}

std::unique_ptr<Model> make_decoder(const Json& config, const DecoderOptions& options) {
  return std::make_unique<Decoder>(config, options);
}

}  // namespace hone
