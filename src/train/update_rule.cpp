#include "train/update_rule.h"

#include "core/error.h"
#include "ops/adamw_8bit/adamw_8bit.h"
#include "train/registry.h"

namespace hone {
namespace {

Type as_f32(Type type) {
  type.dtype = DType::kF32;
  return type;
}

bool has_codes(const Type& weight, const OptimizerOptions& options) {
  return options.moments == MomentFormat::kInt8 && weight.elements() >= kMin8BitElements;
}

// Returns the rule of a weight: with Muon, AdamW updates the kinds of weights that Muon does not.
UpdateRule rule_of(const WeightSpec& spec, const OptimizerOptions& options) {
  if (options.rule != UpdateRule::kMuon) return options.rule;
  const WeightTraits& traits = spec.kind.traits();
  if (traits.muon == MuonUse::kRefused) {
    throw Error("optim", text_of("muon does not support ", spec.name, ", a weight of the kind ", traits.name),
                "choose another optim, for example adamw_torch");
  }
  return traits.muon == MuonUse::kMatrices ? UpdateRule::kMuon : UpdateRule::kAdamw;
}

bool is_overwritten(const WeightSpec& spec, const OptimizerOptions& options) {
  const bool is_matrix = spec.kind == WeightKind::expert || (spec.kind == WeightKind::linear && spec.in_folder);
  return options.overwrites && spec.trainable && is_matrix && update_rule_registry().find(spec.kind) == nullptr &&
         rule_of(spec, options) != UpdateRule::kMuon;
}

void append_adamw(const UpdatedWeight& tensors, const AdamwStep& step, const AdamwAttributes& attributes) {
  const std::vector<Tensor>& states = tensors.states;
  if (states[0].dtype() == DType::kU8) {
    adamw_8bit({tensors.weight, tensors.gradient, states[0], states[1], states[2], states[3]}, step, attributes);
  } else {
    adamw({tensors.weight, tensors.gradient, states[0], states[1], states.size() > 2 ? states[2] : Tensor()}, step,
          attributes);
  }
}

void append_sgd(const UpdatedWeight& tensors, const AdamwStep& step, const AdamwAttributes& common,
                SgdAttributes attributes) {
  attributes.weight_decay = common.weight_decay;
  attributes.seed = common.seed;
  attributes.stream = common.stream;
  attributes.clears = common.clears;
  const std::size_t momenta = attributes.momentum != 0 ? 1 : 0;
  const std::vector<Tensor>& states = tensors.states;
  sgd({tensors.weight, tensors.gradient, momenta > 0 ? states[0] : Tensor(),
       states.size() > momenta ? states[momenta] : Tensor()},
      step, attributes);
}

// Updates each part of a block as a separate matrix.
void append_muon(const WeightSpec& spec, const UpdatedWeight& tensors, const AdamwStep& step,
                 const AdamwAttributes& common, const MuonOptions& options) {
  MuonTensors moved{tensors.weight, tensors.gradient, tensors.states[0],
                    tensors.states.size() > 1 ? tensors.states[1] : Tensor()};
  for (const WeightPart& part : spec.parts) {
    moved = muon(moved, step,
                 {.rows = {.first = part.row, .count = part.rows},
                  .momentum = options.momentum,
                  .nesterov = options.nesterov,
                  .steps = options.steps,
                  .apply = {.rate_ratio = options.rate_ratio,
                            .rate_scale = muon_scale(options.scale, part.rows, spec.shape[1]),
                            .weight_decay = common.weight_decay,
                            .seed = common.seed,
                            .stream = common.stream}});
  }
}

}  // namespace

bool has_masters(DType dtype, const OptimizerOptions& options) {
  return dtype != DType::kF32 && options.moments == MomentFormat::kWide && options.masters;
}

std::vector<NamedType> states_of(const WeightSpec& spec, const Type& weight, const OptimizerOptions& options) {
  if (const WeightUpdateRule* own = update_rule_registry().find(spec.kind)) return own->states(spec, weight, options);
  std::vector<NamedType> states;
  const UpdateRule rule = rule_of(spec, options);
  if (rule == UpdateRule::kMuon || (rule == UpdateRule::kSgd && options.sgd.momentum != 0)) {
    states.push_back({"momentum", as_f32(weight)});
  } else if (rule == UpdateRule::kAdamw && has_codes(weight, options)) {
    const Type codes{DType::kU8, weight.shape};
    const Type scales{DType::kF32, {scales_of(weight.elements())}};
    return {{"exp_avg", codes}, {"exp_avg_sq", codes}, {"exp_avg_scale", scales}, {"exp_avg_sq_scale", scales}};
  } else if (rule == UpdateRule::kAdamw) {
    const Type moment = options.moments == MomentFormat::kAsWeights ? weight : as_f32(weight);
    states = {{"exp_avg", moment}, {"exp_avg_sq", moment}};
  }
  if (has_masters(weight.dtype, options)) states.push_back({"master", as_f32(weight)});
  return states;
}

OverwrittenGradients overwritten_gradients(const Model& model, const OptimizerOptions& options) {
  OverwrittenGradients names;
  for (const WeightSpec& spec : model.weights()) {
    if (is_overwritten(spec, options)) names.insert(spec.name);
  }
  return names;
}

void append_update(const WeightSpec& spec, const UpdatedWeight& tensors, const AdamwStep& step,
                   const OptimizerOptions& options, std::int64_t stream, std::int64_t first, std::int64_t count) {
  AdamwAttributes own = options.adamw;
  if (!spec.decays()) own.weight_decay = 0;
  own.stream = stream;
  own.first = first;
  own.count = count;
  own.clears = !is_overwritten(spec, options);
  if (const WeightUpdateRule* rule = update_rule_registry().find(spec.kind))
    return rule->append(spec, tensors, step, own);
  switch (rule_of(spec, options)) {
    case UpdateRule::kAdamw:
      return append_adamw(tensors, step, own);
    case UpdateRule::kSgd:
      return append_sgd(tensors, step, own, options.sgd);
    case UpdateRule::kMuon:
      return append_muon(spec, tensors, step, own, options.muon);
  }
}

}  // namespace hone
