#include "train/stage_programs.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <utility>

#include "core/error.h"
#include "model/stage_model.h"
#include "passes/shard.h"
#include "passes/stage_states.h"
#include "passes/sum_gradients.h"
#include "program/memory_plan.h"
#include "train/pipeline_schedule.h"

namespace hone {
namespace {

ProgramUse slot_use(std::string store) { return {.states = {.name = std::move(store), .region = Region::kTrain}}; }

// Returns the bytes of the states of a slot in which these programs run.
std::size_t slot_bytes(std::initializer_list<const Program*> programs) {
  std::map<std::string, std::size_t> bytes;
  for (const Program* program : programs) {
    for (const Value& value : program->values()) {
      if (value.producer < 0 && value.role == Role::kState) bytes[value.name] = align_up(value.type.bytes());
    }
  }
  std::size_t sum = 0;
  for (const auto& [name, size] : bytes) sum += size;
  return sum;
}

// Compiles the two programs of a stage that is not the last, for `slots` micro-batches under way. Weights and gradients
// are divided over ranks once the passes are separate, so that each program gathers what it reads.
SplitStage trace_stage(const Model& model, LossProgramOptions options, std::size_t slots) {
  const std::size_t budget = options.compile.activation_budget;
  const Recompute policy = options.compile.recompute;
  const DeviceKind device = options.compile.device;
  const std::shared_ptr<const WeightShares> shares = std::exchange(options.compile.shares, nullptr);
  const auto divided = [&](Program program) { return shares ? shard_weights(program, *shares) : std::move(program); };
  if (policy != Recompute::kLayers) {
    options.compile.recompute = Recompute::kNone;
    SplitStage kept = split_passes(trace_training(model, options));
    kept = {divided(std::move(kept.forward)), divided(std::move(kept.backward))};
    const std::size_t arena =
        std::max(plan_memory(kept.forward, device).arena, plan_memory(kept.backward, device).arena);
    if (policy == Recompute::kNone || arena + slots * slot_bytes({&kept.forward, &kept.backward}) <= budget)
      return kept;
  }
  // The backward program begins with the forward pass, of which it in turn keeps as much as the memory allows.
  options.compile.recompute = Recompute::kAutomatic;
  const auto trace = [&](std::size_t room) {
    options.compile.activation_budget = room;
    return divided(exchange_by_states(trace_training(model, options), StageSends::kGradients));
  };
  Program forward = divided(exchange_by_states(trace_training_forward(model, options), StageSends::kValues));
  Program backward = trace(budget);
  const std::size_t room = budget - std::min(budget, slots * slot_bytes({&forward, &backward}));
  backward = trace(room);
  if (shares) {
    // Whole weights and gradients take room next to the activations, so that fewer of these may be kept.
    const std::size_t arena = plan_memory(backward, device).arena;
    if (arena > room) backward = trace(room - std::min(room, arena - room));
  }
  return {std::move(forward), std::move(backward)};
}

}  // namespace

std::string in_slot(std::string_view program, std::int64_t slot) {
  return slot == 0 ? std::string(program) : text_of(program, " in slot ", slot);
}

std::string slot_store(std::int64_t slot) { return text_of("slot ", slot); }

void add_stage_training(Workspace& workspace, const Model& model, const LossProgramOptions& options, bool sums,
                        const ExpertGradients& experts) {
  const StageCut& cut = *model.stage()->cut();
  const std::int64_t slots = most_under_way(cut.stages(), cut.stage);
  const SplitStage programs =
      cut.is_last() ? SplitStage{{}, exchange_by_states(trace_training(model, options), StageSends::kGradients)}
                    : trace_stage(model, options, static_cast<std::size_t>(slots));
  const Program summing = sums ? sum_gradients(programs.backward, experts) : Program();
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const ProgramUse use = slot_use(slot_store(slot));
    if (!cut.is_last()) workspace.add(in_slot(kStageForwardProgram, slot), programs.forward, use);
    workspace.add(in_slot(kTrainingProgram, slot), programs.backward, use);
    if (sums) workspace.add(in_slot(kSummingProgram, slot), summing, use);
  }
}

void add_stage_evaluation(Workspace& workspace, const Model& model, const LossProgramOptions& options) {
  workspace.add(kEvaluationProgram, exchange_by_states(trace_evaluation(model, options), StageSends::kValues),
                slot_use(kEvaluationSlot));
}

BatchWork work_of_training(const Workspace& workspace, std::int64_t tokens, int context_size) {
  BatchWork work = work_of(workspace.program(kTrainingProgram), tokens, context_size);
  if (!workspace.has_program(kStageForwardProgram)) return work;
  const BatchWork forward = work_of(workspace.program(kStageForwardProgram), tokens, context_size);
  work.per_token += forward.per_token;
  work.per_pair += forward.per_pair;
  return work;
}

}  // namespace hone
