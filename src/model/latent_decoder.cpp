#include "model/latent_decoder.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "model/config_reader.h"
#include "model/decoder_config.h"
#include "ops/add/add.h"
#include "ops/embedding/embedding.h"
#include "ops/head_columns/head_columns.h"
#include "ops/linear/linear.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/lora/lora.h"
#include "ops/next_in_document/next_in_document.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/scale/scale.h"
#include "ops/swiglu/swiglu.h"

namespace hone {
namespace {

// The epsilon of the latent rows' norms, for which transformers does not take rms_norm_eps.
constexpr double kLatentEpsilon = 1e-6;

struct LatentDecoderConfig {
  ModelShape shape;
  std::int64_t intermediate_size = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  RopeTableAttributes rope;
  std::int64_t q_lora_rank = 0;  // 0: queries are computed in one step
  std::int64_t kv_lora_rank = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t value_dim = 0;
  double score_scale = 1;
  std::int64_t prediction_layers = 0;  // layers after the last one that a checkpoint may have
};

// 0 if q_lora_rank is null. A missing key is refused, because transformers then assumes a rank.
std::int64_t parse_query_rank(const Json& json, const ConfigReader& config) {
  return json.contains("q_lora_rank") && !config.has("q_lora_rank") ? 0 : config.positive("q_lora_rank");
}

void check_latent_heads(const LatentDecoderConfig& c) {
  const ModelShape& s = c.shape;
  if (s.num_key_value_heads != s.num_attention_heads) {
    throw Error("config.json", text_of("'num_key_value_heads' is ", s.num_key_value_heads, ", expected the ",
                                       s.num_attention_heads, " of 'num_attention_heads'"));
  }
  if (s.head_dim % 8 != 0 || s.head_dim > 256) {
    throw Error("config.json", text_of("'qk_nope_head_dim' + 'qk_rope_head_dim' is ", s.head_dim,
                                       ", expected a multiple of 8 up to 256"));
  }
  if (c.rope_dim % 2 != 0) {
    throw Error("config.json", text_of("'qk_rope_head_dim' is ", c.rope_dim, ", expected an even number"));
  }
  if (c.value_dim > s.head_dim) {
    throw Error("config.json", text_of("'v_head_dim' is ", c.value_dim, ", expected up to the ", s.head_dim,
                                       " of 'qk_nope_head_dim' + 'qk_rope_head_dim'"));
  }
}

void refuse_unsupported(const ConfigReader& config) {
  if (const std::string activation = config.text("hidden_act", "silu"); activation != "silu") {
    throw Error("config.json", text_of("hidden_act '", activation, "' is not supported"), "silu");
  }
  if (const std::int64_t every = config.positive("moe_layer_freq", 1); every != 1) {
    throw Error("config.json", text_of("'moe_layer_freq' is ", every, ", expected 1"));
  }
  if (const double dropout = config.number("attention_dropout", 0.0); dropout != 0) {
    throw Error("config.json", text_of("'attention_dropout' is ", dropout, ", expected 0"));
  }
  config.require("attention_bias", false);
  config.require("mlp_bias", false);
  config.require("output_router_logits", false);
}

LatentDecoderConfig parse_latent_decoder(const Json& json, bool predicts_tokens) {
  const ConfigReader config(json);
  LatentDecoderConfig parsed;
  ModelShape& s = parsed.shape;
  s.vocab_size = config.positive("vocab_size");
  s.hidden_size = config.positive("hidden_size");
  s.num_hidden_layers = parse_layers(config);
  s.num_attention_heads = config.positive("num_attention_heads");
  s.num_key_value_heads = config.positive("num_key_value_heads", s.num_attention_heads);
  s.max_position_embeddings = config.positive("max_position_embeddings", 2048);
  parsed.nope_dim = config.positive("qk_nope_head_dim");
  parsed.rope_dim = config.positive("qk_rope_head_dim");
  parsed.value_dim = config.positive("v_head_dim");
  s.head_dim = parsed.nope_dim + parsed.rope_dim;
  check_latent_heads(parsed);
  parsed.q_lora_rank = parse_query_rank(json, config);
  parsed.kv_lora_rank = config.positive("kv_lora_rank");
  s.latent_width = parsed.kv_lora_rank + parsed.rope_dim;
  parsed.intermediate_size = config.positive("intermediate_size");
  parsed.rms_norm_eps = config.number("rms_norm_eps", 1e-6);
  parsed.tie_word_embeddings = config.boolean("tie_word_embeddings", false);
  parsed.rope = parse_rope(config, parsed.rope_dim, 10000.0);
  parsed.score_scale = parse_score_scale(config, s.head_dim);
  if (predicts_tokens) {
    parsed.prediction_layers =
        config.has("num_nextn_predict_layers") ? config.not_negative("num_nextn_predict_layers") : 1;
  }
  refuse_unsupported(config);
  return parsed;
}

class LatentDecoder final : public Model {
 public:
  LatentDecoder(const Json& config, LatentDecoderOptions options)
      : json_(config), config_(parse_latent_decoder(config, options.predicts_tokens)), options_(std::move(options)) {
    describe_weights();
  }

  const ModelShape& shape() const override { return config_.shape; }
  const Json& config() const override { return json_; }
  const std::vector<WeightSpec>& weights() const override { return specs_; }
  std::string_view head() const override { return config_.tie_word_embeddings ? "embedding" : "head"; }

  void prepare_training(const ModelTraining& training) override {
    prepare_predictions(training);
    prepare_sequence_balance(options_.mixture, specs_, training);
  }

  bool keep_predictions() override {
    if (config_.prediction_layers != 1) return false;
    keeps_predictions_ = true;
    describe_weights();
    return true;
  }

  bool predicts_further() const override { return keeps_predictions_; }

  Tensor predict_further(WeightBinder& w, Batch& batch, Tensor hidden, Tensor next) const override {
    HONE_ASSERT(keeps_predictions_, "the model was made without its layer for multi-token prediction");
    RouterFigures figures(options_.mixture, batch);
    return prediction(w, batch, hidden, next, rope_table(batch.positions, config_.rope), figures);
  }

  std::string_view left_out(std::string_view tensor) const override {
    constexpr std::string_view kPrefix = "model.layers.";
    if (!tensor.starts_with(kPrefix)) return {};
    tensor.remove_prefix(kPrefix.size());
    std::int64_t layer = 0;
    const auto [end, error] = std::from_chars(tensor.data(), tensor.data() + tensor.size(), layer);
    const bool is_layer = error == std::errc{} && end != tensor.data() + tensor.size() && *end == '.';
    const std::int64_t layers = config_.shape.num_hidden_layers;
    if (keeps_predictions_) return {};
    const bool predicts = is_layer && layer >= layers && layer < layers + config_.prediction_layers;
    return predicts ? "layers for multi-token prediction" : std::string_view{};
  }

  Tensor forward(WeightBinder& w, Batch& batch) const override {
    Program& program = batch.tokens.program();
    const Tensor table = rope_table(batch.positions, config_.rope);
    Tensor x = [&] {
      const Scope scope(program, "embedding");
      return embedding(batch.tokens, w("embedding"));
    }();
    RouterFigures figures(options_.mixture, batch);
    for (std::int64_t layer = 0; layer < config_.shape.num_hidden_layers; ++layer) {
      const Scope scope(program, text_of("layers.", layer));
      x = attention_block(w, batch, layer, x, table);
      x = mlp_block(w, layer, x, figures);
    }
    x = [&] {
      const Scope scope(program, "norm");
      return rms_norm(x, w("norm"), {.epsilon = config_.rms_norm_eps});
    }();
    if (batch.learns && mtp_loss_weight_ > 0) add_prediction_loss(w, batch, x, table, figures);
    figures.finish();
    return x;
  }

 private:
  // Keeps the layer for multi-token prediction if its loss has a weight.
  void prepare_predictions(const ModelTraining& training) {
    if (training.mtp_loss_weight > 0 && config_.prediction_layers == 0) refuse_predictions(training);
    if (training.mtp_loss_weight > 0 && config_.prediction_layers > 1) {
      throw Error("mtp_loss_weight", text_of("is ", training.mtp_loss_weight, ", but num_nextn_predict_layers is ",
                                             config_.prediction_layers, ": hone trains one such layer"));
    }
    mtp_loss_weight_ = training.mtp_loss_weight;
    keeps_predictions_ = mtp_loss_weight_ > 0;
    describe_weights();
  }

  // The index of the layer for multi-token prediction, after the last one.
  std::int64_t prediction_layer() const { return config_.shape.num_hidden_layers; }

  // The layer for multi-token prediction (DeepSeek-V3, 2024, section 2.2). At token t it joins the hidden state after
  // the last norm, as vLLM and SGLang do, with the embedding of token t + 1, and predicts token t + 2 by the model's
  // own head. `next` holds the tokens t + 1.
  Tensor prediction(WeightBinder& w, Batch& batch, Tensor hidden, Tensor next, Tensor table,
                    RouterFigures& figures) const {
    const std::int64_t layer = prediction_layer();
    const auto weight = [&](std::string_view name) { return w(layer_name(layer, name)); };
    const auto norm = [&](Tensor x, std::string_view name) {
      return rms_norm(x, weight(name), {.epsilon = config_.rms_norm_eps});
    };
    const Scope scope(hidden.program(), text_of("layers.", layer));
    const Tensor joined = join_columns(norm(embedding(next, w("embedding")), "prediction.embedding_norm"),
                                       norm(hidden, "prediction.hidden_norm"));
    const Tensor x = attention_block(w, batch, layer, linear(joined, weight("prediction.join")), table);
    return norm(mlp_block(w, layer, x, figures), "prediction.norm");
  }

  // Adds the loss of that layer. Where token t + 1 is no target, the loss of t has the weight 0.
  void add_prediction_loss(WeightBinder& w, Batch& batch, Tensor hidden, Tensor table, RouterFigures& figures) const {
    Program& program = hidden.program();
    const Tensor bounds = program.tensor(program.find(Role::kInput, "cu_seqlens"));
    const Tensor y = prediction(w, batch, hidden, next_in_document(batch.tokens, bounds, {}), table, figures);
    const Scope scope(program, "prediction_head");
    const Tensor targets = next_in_document(batch.targets(), bounds, {.last = -1});
    const Tensor logp = linear_logprobs(y, w(head()), targets, {}).logp;
    batch.add_loss({"mtp_loss", mtp_loss_weight_, scale(logp, -1.0)});
  }

  // x + out(attention(query(h), latent(h), rope_key(h))), h = norm(x)
  Tensor attention_block(WeightBinder& w, Batch& batch, std::int64_t layer, Tensor x, Tensor table) const {
    const Scope scope(x.program(), "attention");
    const LatentDecoderConfig& c = config_;
    const auto weight = [&](std::string_view name) { return w(layer_name(layer, name)); };
    const Tensor h = rms_norm(x, weight("input_norm"), {.epsilon = c.rms_norm_eps});
    const std::int64_t compressed = c.kv_lora_rank + c.rope_dim;  // a row has the latent row, then the key's rope part
    const Tensor kv = linear(h, weight("attention.kv_down"));
    const Tensor latent = head_columns(kv, {.heads = 1, .head_dim = compressed, .columns = c.kv_lora_rank});
    const Tensor key =
        head_columns(kv, {.heads = 1, .head_dim = compressed, .columns = c.rope_dim, .first = c.kv_lora_rank});
    const Tensor o = batch.attend(
        layer, {.query = rope(query(w, layer, h), table,
                              {.heads = c.shape.num_attention_heads,
                               .head_dim = c.shape.head_dim,
                               .offset = c.nope_dim,
                               .interleaved = options_.interleaved}),
                .latent = rms_norm(latent, weight("attention.kv_norm"), {.epsilon = kLatentEpsilon}),
                .rope_key = rope(key, table, {.heads = 1, .head_dim = c.rope_dim, .interleaved = options_.interleaved}),
                .up = weight("attention.kv_up"),
                .heads = c.shape.num_attention_heads,
                .nope_dim = c.nope_dim,
                .rope_dim = c.rope_dim,
                .value_dim = c.value_dim,
                .scale = c.score_scale});
    return x + linear(o, weight("attention.out"));
  }

  // [tokens, heads x head_dim]
  Tensor query(WeightBinder& w, std::int64_t layer, Tensor h) const {
    if (config_.q_lora_rank == 0) return linear(h, w(layer_name(layer, "attention.query")));
    const Tensor low = linear(h, w(layer_name(layer, "attention.query_down")));
    const Tensor latent = rms_norm(low, w(layer_name(layer, "attention.query_norm")), {.epsilon = kLatentEpsilon});
    return linear(latent, w(layer_name(layer, "attention.query_up")));
  }

  // x + down(swiglu(gate_up(norm(x)))), or x + mixture(norm(x))
  Tensor mlp_block(WeightBinder& w, std::int64_t layer, Tensor x, RouterFigures& figures) const {
    const Scope scope(x.program(), "mlp");
    const Tensor h = rms_norm(x, w(layer_name(layer, "mlp_norm")), {.epsilon = config_.rms_norm_eps});
    if (options_.mixture.is_in(layer)) return x + mixture_forward(options_.mixture, layer, w, h, figures);
    const Tensor inner = swiglu(linear(h, w(layer_name(layer, "mlp.gate_up"))));
    return x + linear(inner, w(layer_name(layer, "mlp.down")));
  }

  void add_matrix(std::string name, std::int64_t rows, std::int64_t columns, std::string part, PartAxis axis,
                  WeightKind kind = WeightKind::linear) {
    specs_.push_back(
        {std::move(name), {rows, columns}, {{.name = std::move(part), .rows = rows, .axes = {axis}}}, kind});
  }

  void add_norm(std::string name, std::int64_t size, std::string part) {
    specs_.push_back({std::move(name), {size}, {{std::move(part), 0, size}}, WeightKind::norm, Initializer::kOnes});
  }

  void describe_weights() {
    specs_.clear();
    const ModelShape& s = config_.shape;
    const PartAxis by_token{ShardAxis::kVocabulary};
    add_matrix("embedding", s.vocab_size, s.hidden_size, "model.embed_tokens.weight", by_token, WeightKind::embedding);
    for (std::int64_t layer = 0; layer < s.num_hidden_layers; ++layer) describe_layer(layer);
    add_norm("norm", s.hidden_size, "model.norm.weight");
    if (!config_.tie_word_embeddings) {
      add_matrix("head", s.vocab_size, s.hidden_size, "lm_head.weight", by_token, WeightKind::head);
    }
    if (keeps_predictions_) describe_predictions();
    check_parameter_count(specs_);
  }

  void describe_layer(std::int64_t layer) {
    const std::int64_t hidden = config_.shape.hidden_size;
    const std::string part = text_of("model.layers.", layer, ".");
    add_norm(layer_name(layer, "input_norm"), hidden, part + "input_layernorm.weight");
    describe_attention(layer_name(layer, "attention."), part + "self_attn.");
    add_norm(layer_name(layer, "mlp_norm"), hidden, part + "post_attention_layernorm.weight");
    if (options_.mixture.is_in(layer)) return describe_mixture(options_.mixture, layer, hidden, specs_);
    describe_gated_mlp(layer_name(layer, "mlp."), part + "mlp.", hidden, config_.intermediate_size, specs_);
  }

  // The layer for multi-token prediction. Folders hold copies of the embedding and the head in it.
  void describe_predictions() {
    const std::int64_t layer = prediction_layer();
    const std::int64_t hidden = config_.shape.hidden_size;
    const std::string part = text_of("model.layers.", layer, ".");
    for (WeightSpec& spec : specs_) {
      if (spec.name == "embedding") spec.parts[0].copies.push_back(part + "embed_tokens.weight");
      if (spec.name == head()) spec.parts[0].copies.push_back(part + "shared_head.head.weight");
    }
    describe_layer(layer);
    add_norm(layer_name(layer, "prediction.embedding_norm"), hidden, part + "enorm.weight");
    add_norm(layer_name(layer, "prediction.hidden_norm"), hidden, part + "hnorm.weight");
    add_matrix(layer_name(layer, "prediction.join"), hidden, 2 * hidden, part + "eh_proj.weight", {});
    add_norm(layer_name(layer, "prediction.norm"), hidden, part + "shared_head.norm.weight");
  }

  void describe_attention(const std::string& block, const std::string& part) {
    const LatentDecoderConfig& c = config_;
    const std::int64_t hidden = c.shape.hidden_size;
    const std::int64_t heads = c.shape.num_attention_heads;
    const PartAxis by_query{ShardAxis::kHeads, 0, c.shape.head_dim};
    if (c.q_lora_rank == 0) {
      add_matrix(block + "query", heads * c.shape.head_dim, hidden, part + "q_proj.weight", by_query);
    } else {
      add_matrix(block + "query_down", c.q_lora_rank, hidden, part + "q_a_proj.weight", {});
      add_norm(block + "query_norm", c.q_lora_rank, part + "q_a_layernorm.weight");
      add_matrix(block + "query_up", heads * c.shape.head_dim, c.q_lora_rank, part + "q_b_proj.weight", by_query);
    }
    add_matrix(block + "kv_down", c.kv_lora_rank + c.rope_dim, hidden, part + "kv_a_proj_with_mqa.weight", {});
    add_norm(block + "kv_norm", c.kv_lora_rank, part + "kv_a_layernorm.weight");
    const std::int64_t expanded = c.nope_dim + c.value_dim;
    add_matrix(block + "kv_up", heads * expanded, c.kv_lora_rank, part + "kv_b_proj.weight",
               {ShardAxis::kHeads, 0, expanded});
    add_matrix(block + "out", hidden, heads * c.value_dim, part + "o_proj.weight", {ShardAxis::kHeads, 1, c.value_dim});
  }

  Json json_;
  LatentDecoderConfig config_;
  LatentDecoderOptions options_;
  bool keeps_predictions_ = false;  // the model has its layer for multi-token prediction
  double mtp_loss_weight_ = 0;      // above 0 if that layer is trained
  std::vector<WeightSpec> specs_;
};

}  // namespace

ExpertMixture parse_latent_mixture(const Json& json) {
  const ConfigReader config(json);
  ExpertMixture mixture{.names = {.router = "mlp.gate",
                                  .experts = "mlp.experts",
                                  .gate = "gate_proj",
                                  .up = "up_proj",
                                  .down = "down_proj",
                                  .shared = "mlp.shared_experts"}};
  mixture.experts = config.positive("n_routed_experts");
  mixture.routing.top_k = config.positive("num_experts_per_tok");
  mixture.routing.factor = config.number("routed_scaling_factor", 1.0);
  mixture.intermediate_size = config.positive("moe_intermediate_size");
  mixture.shared_size = config.positive("n_shared_experts") * mixture.intermediate_size;
  const std::int64_t dense = std::min(config.not_negative("first_k_dense_replace"), parse_layers(config));
  mixture.dense_layers.resize(static_cast<std::size_t>(dense));
  std::iota(mixture.dense_layers.begin(), mixture.dense_layers.end(), 0);
  return mixture;
}

std::unique_ptr<Model> make_latent_decoder(const Json& config, LatentDecoderOptions options) {
  check_groups(options.mixture);
  return std::make_unique<LatentDecoder>(config, std::move(options));
}

}  // namespace hone
