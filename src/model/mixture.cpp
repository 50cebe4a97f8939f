#include "model/mixture.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "model/config_reader.h"
#include "ops/add/add.h"
#include "ops/expert_combine/expert_combine.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/expert_load/expert_load.h"
#include "ops/expert_order/expert_order.h"
#include "ops/fill/fill.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/linear.h"
#include "ops/router/router.h"
#include "ops/router_balance/router_balance.h"
#include "ops/swiglu/swiglu.h"

namespace hone {
namespace {

constexpr const char* kRouterLoss = "aux_loss";  // metric of the loss that balances routers, as TRL calls it

std::string block_name(std::int64_t layer, std::string_view rest) { return text_of("layers.", layer, ".mlp.", rest); }

// The number of experts under either of the names that transformers reads.
std::int64_t parse_experts(const ConfigReader& config) {
  constexpr const char* kKey = "num_experts";
  constexpr const char* kOtherKey = "num_local_experts";
  const char* key = config.has(kKey) ? kKey : kOtherKey;
  const std::int64_t experts = config.positive(key);
  if (const std::int64_t other = config.positive(kOtherKey, experts); other != experts) {
    throw Error("config.json", text_of("'", kKey, "' is ", experts, ", but '", kOtherKey, "' is ", other));
  }
  if (experts > kMostExperts) {
    throw Error("config.json", text_of("'", key, "' is ", experts, ", expected up to ", kMostExperts));
  }
  return experts;
}

// The layers of `mlp_only_layers`.
std::vector<std::int64_t> parse_dense_layers(const Json& config) {
  constexpr const char* kKey = "mlp_only_layers";
  const auto found = config.find(kKey);
  if (found == config.end() || found->is_null()) return {};
  const auto is_layer = [](const Json& each) {
    return each.is_number_integer() && each.get<double>() >= 0 && each.get<double>() < kMostConfig;
  };
  if (!found->is_array() || !std::ranges::all_of(*found, is_layer)) {
    throw Error("config.json", text_of("'", kKey, "' is ", found->dump(), ", expected a list of layers"));
  }
  return found->get<std::vector<std::int64_t>>();
}

}  // namespace

bool ExpertMixture::is_in(std::int64_t layer) const {
  return (layer + 1) % step == 0 && std::ranges::find(dense_layers, layer) == dense_layers.end();
}

ExpertMixture parse_mixture(const Json& json, std::string_view inner_key, MixtureNames names) {
  const ConfigReader config(json);
  ExpertMixture mixture{.names = std::move(names)};
  mixture.experts = parse_experts(config);
  mixture.routing.top_k = config.positive("num_experts_per_tok");
  if (mixture.routing.top_k > mixture.experts) {
    throw Error("config.json", text_of("'num_experts_per_tok' is ", mixture.routing.top_k, ", expected up to the ",
                                       mixture.experts, " experts of a layer"));
  }
  mixture.intermediate_size = config.positive(inner_key);
  mixture.routing.normalize = config.boolean("norm_topk_prob", false);
  mixture.step = config.positive("decoder_sparse_step", 1);
  mixture.dense_layers = parse_dense_layers(json);
  mixture.balance.router_loss = config.boolean("output_router_logits", false);
  mixture.balance.router_loss_coef = config.number("router_aux_loss_coef", mixture.balance.router_loss_coef);
  if (const double noise = config.number("router_jitter_noise", 0.0); noise != 0) {
    throw Error("config.json", text_of("'router_jitter_noise' is ", noise, ", expected 0"));
  }
  return mixture;
}

void check_groups(const ExpertMixture& mixture) {
  const RouterAttributes& a = mixture.routing;
  const auto refuse = [](const auto&... parts) { throw Error("config.json", text_of(parts...)); };
  if (mixture.experts > kMostExperts) {
    refuse("'n_routed_experts' is ", mixture.experts, ", expected up to ", kMostExperts);
  }
  if (mixture.experts % a.groups != 0) {
    refuse("'n_group' is ", a.groups, ", which does not divide the ", mixture.experts, " experts ('n_routed_experts')");
  }
  if (a.top_groups > a.groups) {
    refuse("'topk_group' is ", a.top_groups, ", expected up to the ", a.groups, " groups ('n_group')");
  }
  const std::int64_t size = mixture.experts / a.groups;
  if (a.group_depth > size) {
    refuse("'n_group' is ", a.groups, ", so that a group has ", size, " of the ", mixture.experts,
           " experts; its score is the sum of ", a.group_depth);
  }
  if (a.top_k > a.top_groups * size) {
    refuse("'num_experts_per_tok' is ", a.top_k, ", expected up to the ", a.top_groups * size, " experts of ",
           a.top_groups, " groups ('topk_group')");
  }
}

void describe_mixture(const ExpertMixture& mixture, std::int64_t layer, std::int64_t hidden_size,
                      std::vector<WeightSpec>& specs) {
  const std::string prefix = text_of("model.layers.", layer, ".");
  const std::string merged = prefix + "mlp.experts.";  // transformers' names in memory, which it can also save
  const std::int64_t inner = mixture.intermediate_size;
  specs.push_back({block_name(layer, "router"),
                   {mixture.experts, hidden_size},
                   {{.name = prefix + mixture.names.router + ".weight",
                     .rows = mixture.experts,
                     .alternative = {.tensor = prefix + "mlp.gate.weight"}}},
                   WeightKind::router});
  if (mixture.correction_bias) {
    specs.push_back({.name = block_name(layer, "router_bias"),
                     .shape = {mixture.experts},
                     .parts = {{.name = prefix + mixture.names.router + ".e_score_correction_bias",
                                .row = 0,
                                .rows = mixture.experts}},
                     .kind = WeightKind::router_bias,
                     .initializer = Initializer::kZeros,
                     .dtype = DType::kF32,
                     .trainable = false});
  }
  WeightSpec gate_up{
      block_name(layer, "experts.gate_up"), {mixture.experts * 2 * inner, hidden_size}, {}, WeightKind::expert};
  WeightSpec down{block_name(layer, "experts.down"), {mixture.experts * hidden_size, inner}, {}, WeightKind::expert};
  for (std::int64_t e = 0; e < mixture.experts; ++e) {
    const std::string expert = text_of(prefix, mixture.names.experts, ".", e, ".");
    const auto add = [&](WeightSpec& spec, const std::string& name, std::int64_t rows, PartAxis axis,
                         PartSource source) {
      const std::int64_t first = spec.parts.empty() ? 0 : spec.parts.back().row + spec.parts.back().rows;
      spec.parts.push_back({.name = expert + name + ".weight",
                            .row = first,
                            .rows = rows,
                            .axes = {axis},
                            .alternative = std::move(source)});
    };
    add(gate_up, mixture.names.gate, inner, {ShardAxis::kInner, 0}, {merged + "gate_up_proj", e, 0});
    add(gate_up, mixture.names.up, inner, {ShardAxis::kInner, 0}, {merged + "gate_up_proj", e, inner});
    add(down, mixture.names.down, hidden_size, {ShardAxis::kInner, 1}, {merged + "down_proj", e, 0});
  }
  specs.push_back(std::move(gate_up));
  specs.push_back(std::move(down));
  if (mixture.shared_size > 0) {
    describe_gated_mlp(block_name(layer, "shared."), prefix + mixture.names.shared + ".", hidden_size,
                       mixture.shared_size, specs);
  }
}

void describe_gated_mlp(const std::string& block, const std::string& part, std::int64_t hidden_size, std::int64_t inner,
                        std::vector<WeightSpec>& specs) {
  const std::vector<PartAxis> rows{{ShardAxis::kInner, 0}};
  specs.push_back({block + "gate_up",
                   {2 * inner, hidden_size},
                   {{.name = part + "gate_proj.weight", .row = 0, .rows = inner, .axes = rows},
                    {.name = part + "up_proj.weight", .row = inner, .rows = inner, .axes = rows}},
                   WeightKind::linear});
  specs.push_back({block + "down",
                   {hidden_size, inner},
                   {{.name = part + "down_proj.weight", .rows = hidden_size, .axes = {{ShardAxis::kInner, 1}}}},
                   WeightKind::linear});
}

void prepare_router_loss(ExpertMixture& mixture, const ModelTraining& training) {
  refuse_sequence_balance(training);
  MixtureBalance& balance = mixture.balance;
  balance.router_loss = training.output_router_logits.value_or(balance.router_loss);
  if (training.router_aux_loss_coef && !balance.router_loss) {
    throw Error("router_aux_loss_coef",
                text_of("is ", *training.router_aux_loss_coef, ", but output_router_logits is false: there is no loss"),
                "set output_router_logits: true");
  }
  balance.router_loss_coef = training.router_aux_loss_coef.value_or(balance.router_loss_coef);
}

void prepare_sequence_balance(ExpertMixture& mixture, std::vector<WeightSpec>& specs, const ModelTraining& training) {
  refuse_router_loss(training);
  mixture.balance.sequence_alpha = training.aux_loss_alpha;
  if (!mixture.correction_bias) {
    ModelTraining others = training;
    others.aux_loss_alpha = 0;
    refuse_sequence_balance(others);
  }
  for (WeightSpec& spec : specs) {
    if (spec.kind != WeightKind::router_bias) continue;
    spec.update_speed = training.bias_update_speed;
    spec.trainable = training.bias_update_speed > 0;
  }
}

void RouterFigures::add(std::int64_t layer, Tensor logits, const Routing& routing) {
  if (!batch_.learns) return;
  Program& program = logits.program();
  const Tensor nothing = fill(program, {DType::kF32, {mixture_.experts}}, 0.0);
  batch_.add_statistic(
      {text_of("expert_load/layers.", layer), StatisticKind::kLoad, expert_load(routing.expert, nothing)});
  ++layers_;
  const MixtureBalance& balance = mixture_.balance;
  if (balance.router_loss) {
    const Tensor sums = router_sums(logits, routing.expert, {}, {});
    sums_ = sums_ ? sums_ + sums : sums;
  }
  if (balance.sequence_alpha == 0) return;
  // DeepSeek-V3 counts the experts with the highest scores, whatever the biases and the groups choose.
  const RouterAttributes& choice = mixture_.routing;
  const Tensor expert = mixture_.correction_bias
                            ? router(logits, {}, {.top_k = choice.top_k, .sigmoid = choice.sigmoid}).expert
                            : routing.expert;
  const Tensor bounds = program.tensor(program.find(Role::kInput, "cu_seqlens"));
  const Tensor term = router_balance(router_sums(logits, expert, bounds, {.sigmoid = choice.sigmoid}), batch_.tokens,
                                     bounds, {.factor = 1.0 / static_cast<double>(choice.top_k)});
  term_ = term_ ? term_ + term : term;
}

void RouterFigures::finish() {
  if (sums_) {
    batch_.add_loss({kRouterLoss, mixture_.balance.router_loss_coef,
                     router_balance(sums_, batch_.tokens, {}, {.layers = layers_})});
  }
  if (term_) batch_.add_loss({kRouterLoss, mixture_.balance.sequence_alpha, term_});
}

Tensor mixture_forward(const ExpertMixture& mixture, std::int64_t layer, WeightBinder& w, Tensor x,
                       RouterFigures& figures) {
  const GroupedLinearAttributes by_expert{.experts = mixture.experts};
  const Tensor logits = linear(x, w(block_name(layer, "router")), {}, {.f32_output = true});
  const Tensor bias = mixture.correction_bias ? w(block_name(layer, "router_bias")) : Tensor();
  const Routing routing = router(logits, bias, mixture.routing);
  figures.add(layer, logits, routing);
  const ExpertOrder order = expert_order(routing.expert, {.experts = mixture.experts});
  const Tensor rows = expert_dispatch(x, order.position);
  const Tensor gate_up = grouped_linear(rows, w(block_name(layer, "experts.gate_up")), order.start, by_expert);
  const Tensor y = grouped_linear(swiglu(gate_up), w(block_name(layer, "experts.down")), order.start, by_expert);
  const Tensor routed = expert_combine(y, routing.weight, order.position);
  if (mixture.shared_size == 0) return routed;
  const Tensor shared = swiglu(linear(x, w(block_name(layer, "shared.gate_up"))));
  return routed + linear(shared, w(block_name(layer, "shared.down")));
}

}  // namespace hone
