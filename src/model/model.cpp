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

std::string_view Model::left_out(std::string_view tensor) const {
  (void)tensor;
  return {};
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
  for (const WeightSpec& spec : model.weights()) total += elements_of(spec);
  return total;
}

std::int64_t trained_parameter_count(const Model& model) {
  std::int64_t total = 0;
  for (const WeightSpec& spec : model.weights()) total += spec.trainable ? elements_of(spec) : 0;
  return total;
}

}  // namespace hone
