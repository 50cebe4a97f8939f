#include "model/model.h"

#include <algorithm>

#include "core/error.h"

namespace hone {

void check_positions(const ModelShape& shape, std::int64_t length, std::string_view where, std::string_view fix) {
  const std::int64_t most = shape.max_position_embeddings;
  if (length <= most) return;
  std::string help = fix.empty() ? text_of("at most ", most) : std::string(fix);
  if (!shape.learned_positions) help += "; to train longer sequences, raise max_position_embeddings in config.json";
  throw Error(where,
              text_of("sequences of up to ", length, " tokens, but the model has ", most,
                      " positions (max_position_embeddings)"),
              help);
}

std::string layer_name(std::int64_t layer, std::string_view rest) { return text_of("layers.", layer, ".", rest); }

WeightBinder::WeightBinder(Program& program, const std::vector<WeightSpec>& specs, bool trainable)
    : program_(program), specs_(specs), trainable_(trainable) {}

Tensor WeightBinder::operator()(std::string_view name) {
  if (const ValueId id = program_.find(Role::kWeight, name); id != kNoValue) return program_.tensor(id);
  for (const WeightSpec& spec : specs_) {
    if (spec.name != name) continue;
    return program_.weight(spec.name, spec.traced_type(), trainable_ && spec.trainable, spec.dtype.has_value());
  }
  throw Defect(text_of("the model has no weight ", name));
}

bool has_tied_head(const Model& model) {
  const auto is_head = [&](const WeightSpec& spec) { return spec.name == model.head(); };
  const auto head = std::ranges::find_if(model.weights(), is_head);
  return head != model.weights().end() && head->kind == WeightKind::embedding;
}

Tensor Model::predict_further(WeightBinder&, Batch&, Tensor, Tensor) const {
  throw Defect("the model has no layer for multi-token prediction");
}

std::string_view Model::left_out(std::string_view tensor) const {
  (void)tensor;
  return {};
}

void Model::prepare_training(const ModelTraining& training) {
  refuse_router_loss(training);
  refuse_sequence_balance(training);
  refuse_predictions(training);
}

void refuse_router_loss(const ModelTraining& training) {
  constexpr const char* kReason = "the model has no router whose loss transformers adds (mixtral, qwen3_moe)";
  if (training.output_router_logits == true) throw Error("output_router_logits", text_of("is true, but ", kReason));
  if (training.router_aux_loss_coef) {
    throw Error("router_aux_loss_coef", text_of("is ", *training.router_aux_loss_coef, ", but ", kReason));
  }
}

void refuse_sequence_balance(const ModelTraining& training) {
  if (training.aux_loss_alpha != 0) {
    throw Error("aux_loss_alpha",
                text_of("is ", training.aux_loss_alpha,
                        ", but the model has no routers of DeepSeek's kind (deepseek_v2, deepseek_v3)"));
  }
  if (training.bias_update_speed != 0) {
    throw Error("bias_update_speed",
                text_of("is ", training.bias_update_speed,
                        ", but the model's routers have no biases (e_score_correction_bias of deepseek_v3)"));
  }
}

void refuse_predictions(const ModelTraining& training) {
  if (training.mtp_loss_weight == 0) return;
  throw Error("mtp_loss_weight", text_of("is ", training.mtp_loss_weight,
                                         ", but the model has no layer for multi-token prediction (deepseek_v3 with "
                                         "num_nextn_predict_layers in config.json)"));
}

bool has_router_biases(const Model& model) {
  return std::ranges::any_of(model.weights(),
                             [](const WeightSpec& spec) { return spec.kind == WeightKind::router_bias; });
}

Program Model::adapted(Program program, const TraceUse& use) const {
  (void)use;
  return program;
}

namespace {

std::int64_t elements_of(const WeightSpec& spec) {
  std::int64_t rows = 0;
  for (const WeightPart& part : spec.parts) rows += part.rows;
  for (std::size_t i = 1; i < spec.shape.size(); ++i) rows *= spec.shape[i];
  return rows;
}

}  // namespace

std::int64_t parameter_count(const Model& model) {
  std::int64_t total = 0;
  for (const WeightSpec& spec : model.whole().weights()) total += elements_of(spec);
  return total;
}

std::int64_t trained_parameter_count(const Model& model) {
  std::int64_t total = 0;
  for (const WeightSpec& spec : model.whole().weights()) total += spec.trainable ? elements_of(spec) : 0;
  return total;
}

}  // namespace hone
