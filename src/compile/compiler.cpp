#include "compile/compiler.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "ops/fill/fill.h"
#include "ops/set_flag/set_flag.h"
#include "passes/gather_again.h"
#include "passes/offload.h"
#include "passes/precision.h"
#include "program/memory_plan.h"

namespace hone {
namespace {

// Returns the fused program with its backward pass from the output named `loss`, fused again across both passes. That
// of a stage of a pipeline starts from the values that it sends as well, and ends at those that it has received.
Program with_gradients(const Program& program, std::string_view loss, const CompileOptions& options,
                       FusionScope reach) {
  Program result = fuse(program, reach);
  std::vector<GradientSeed> seeds;
  for (const Output& output : std::vector<Output>(result.outputs())) {
    const Tensor value = result.tensor(output.value);
    if (output.name == loss) seeds.push_back({value, fill(result, value.type(), 1.0)});
    if (is_sent(output.name) && has_gradient(output.name)) {
      seeds.push_back({value, result.input(gradient_name(output.name), value.type())});
    }
  }
  if (seeds.empty()) throw Defect(text_of("the program has no output ", loss));
  std::vector<Tensor> received;
  for (std::size_t i = 0; i < result.values().size(); ++i) {
    const Value& value = result.values()[i];
    if (value.role != Role::kInput || !is_received(value.name) || !has_gradient(value.name)) continue;
    received.push_back(result.tensor(static_cast<ValueId>(i)));
  }
  const std::vector<Tensor> gradients =
      append_gradients(result, seeds, received, options.gradients, options.overwritten);
  for (std::size_t i = 0; i < received.size(); ++i) {
    const std::string name = gradient_name(received[i].value().name);
    HONE_ASSERT(gradients[i].valid(), "a stage has no ", name);
    result.output(name, gradients[i]);
  }
  if (const ValueId flag = result.find(Role::kGradient, kAccumulatedFlag); flag != kNoValue) {
    result.set_phase(Phase::kBackward);
    (void)set_flag(result.tensor(flag));
    result.set_phase(Phase::kForward);
  }
  return fuse(result, reach);
}

// Returns the program with the products in FP8 that the options ask for.
Program in_fp8(const Program& typed, const CompileOptions& options, ProgramKind kind,
               Fp8Copies copies = Fp8Copies::kMade) {
  if (options.fp8_weights == nullptr) return typed;
  return with_fp8(typed, *options.fp8_weights, kind == ProgramKind::kTraining, copies);
}

}  // namespace

Program Compiler::typed(Program traced, ProgramKind kind) const {
  Program program = with_precision(with(std::move(traced), PassStage::kTraced, kind), options_.dtype);
  if (options_.stage != nullptr) program = cut_stage(program, *options_.stage);
  return with(std::move(program), PassStage::kTyped, kind);
}

Program Compiler::inference(Program traced) const {
  constexpr ProgramKind kKind = ProgramKind::kInference;
  const Program program_in_fp8 = in_fp8(with_quantized_inputs(typed(std::move(traced), kKind)), options_, kKind);
  Program program = fuse(program_in_fp8, options_.inference_reach);
  if (options_.shares != nullptr && options_.shares->weights) program = shard_weights(program, *options_.shares);
  return with(std::move(program), PassStage::kFinished, kKind);
}

Program Compiler::training(Program traced, std::string_view loss) const {
  constexpr ProgramKind kKind = ProgramKind::kTraining;
  Program program = divided(typed(std::move(traced), kKind), loss);
  return with(std::move(program), PassStage::kFinished, kKind);
}

Program Compiler::update(Program traced) const {
  constexpr ProgramKind kKind = ProgramKind::kUpdate;
  Program program = with(with(std::move(traced), PassStage::kTraced, kKind), PassStage::kTyped, kKind);
  return with(std::move(program), PassStage::kFinished, kKind);
}

Program Compiler::divided(const Program& typed, std::string_view loss) const {
  Program program = differentiated(typed, loss, options_.activation_budget);
  if (options_.shares == nullptr) return program;
  Program sharded = shard_weights(program, *options_.shares);
  if (options_.recompute == Recompute::kNone) return sharded;
  // Whole weights and gradients take room next to the activations, so that fewer of these may be kept.
  const std::size_t kept = plan_memory(program, options_.device).arena;
  const std::size_t taken = plan_memory(sharded, options_.device).arena;
  if (taken <= options_.activation_budget || taken <= kept) return sharded;
  const std::size_t more = taken - kept;
  program = differentiated(typed, loss, options_.activation_budget - std::min(options_.activation_budget, more));
  return shard_weights(program, *options_.shares);
}

Program Compiler::differentiated(const Program& typed, std::string_view loss, std::size_t budget) const {
  const Program quantized = in_fp8(typed, options_, ProgramKind::kTraining);
  // Fusing across layers is possible only if no pass keeps values layer by layer. Try the program without recomputation
  // first and take it if its arena fits the budget, with products in FP8 rather with held or kept copies of the
  // weights. A stage of a pipeline would keep copies for each micro-batch under way, unless it computes both passes
  // together.
  if (options_.recompute != Recompute::kLayers && !options_.offload) {
    const bool keeps_copies = options_.stage == nullptr || options_.stage->is_last();
    for (const Fp8Copies copies : {Fp8Copies::kHeld, Fp8Copies::kKept}) {
      if (options_.fp8_weights == nullptr || !keeps_copies) continue;
      if (copies == Fp8Copies::kHeld && !options_.holds_fp8_weights) continue;
      const Program keeping = in_fp8(typed, options_, ProgramKind::kTraining, copies);
      Program kept = with_gradients(keeping, loss, options_, FusionScope::kProgram);
      if (plan_memory(kept, options_.device).arena + held_fp8_bytes(kept) <= budget) return kept;
    }
    Program whole = with_gradients(quantized, loss, options_, FusionScope::kProgram);
    if (options_.recompute == Recompute::kNone) return gather_again(whole);
    if (plan_memory(whole, options_.device).arena <= budget) return whole;
  }
  Program program = with_gradients(quantized, loss, options_, FusionScope::kLayer);
  // With offload, values kept inside layers would only travel to the host and back, so recompute as much as possible.
  const bool keeps_least = options_.offload && options_.recompute == Recompute::kLayers;
  program = recompute(program, options_.recompute, keeps_least ? 0 : budget, options_.device);
  return options_.offload ? offload_activations(program) : program;
}

}  // namespace hone
