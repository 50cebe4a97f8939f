#include "planner/model_flops.h"

#include <algorithm>

#include "core/json_value.h"
#include "model/weight_layout.h"

namespace hone {
namespace {

// The share of a mixture's experts that a token is sent to; 1 without a mixture.
double expert_share(const Model& model) {
  const auto is_router = [](const WeightSpec& spec) { return spec.kind == WeightKind::router; };
  const auto router = std::ranges::find_if(model.weights(), is_router);
  const auto top_k = model.config().find("num_experts_per_tok");
  if (router == model.weights().end() || top_k == model.config().end()) return 1;
  return top_k->get<double>() / static_cast<double>(router->shape[0]);
}

}  // namespace

double model_flops_per_token(const Model& model, double length) {
  const ModelShape shape = model.shape();
  double parameters = 0;
  for (const WeightSpec& spec : model.weights()) {
    const auto size = static_cast<double>(spec.shape[0] * row_elements(spec));
    const bool is_read_by_row = spec.kind == WeightKind::embedding && !has_tied_head(model);
    if (!is_read_by_row) parameters += spec.kind == WeightKind::expert ? size * expert_share(model) : size;
  }
  const auto value_dim = model.config().find("v_head_dim");
  const double keys = static_cast<double>(shape.head_dim);
  const double values = value_dim == model.config().end() ? keys : value_dim->get<double>();
  const double attention =
      static_cast<double>(shape.num_hidden_layers * shape.num_attention_heads) * (keys + values) / 2;
  return 6 * parameters + 6 * attention * length;
}

}  // namespace hone
