#include "train/language_programs.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "train/setup.h"
#include "train/stage_programs.h"

namespace hone {
namespace {

// Rounds the capacities up to what products in FP8 need; micro-batches stay as they are.
MicroBatchShape with_fp8_capacities(MicroBatchShape shape, const TrainingOptions& options) {
  for (std::int64_t& tokens : shape.capacities) {
    tokens = fp8_capacity(options.fp8, tokens, options.context_parallel_size);
  }
  shape.capacities.erase(std::unique(shape.capacities.begin(), shape.capacities.end()), shape.capacities.end());
  return shape;
}

}  // namespace

MicroBatchShape training_shape(const LanguageSizes& sizes, const TrainingOptions& options) {
  MicroBatchShape shape = micro_batch_shape(sizes.steps, options.max_tokens_per_micro_batch, "training");
  // Offloaded activations and what stages exchange are states, whose types are those of one capacity.
  if (options.activation_offloading || options.pipeline_parallel_size > 1) shape.capacities = {shape.limits.tokens};
  return with_fp8_capacities(std::move(shape), options);
}

MicroBatchShape evaluation_shape(const LanguageSizes& sizes, const TrainingOptions& options) {
  HONE_ASSERT(sizes.eval_steps.has_value(), "the run has no evaluation");
  MicroBatchShape shape = micro_batch_shape(*sizes.eval_steps, options.max_tokens_per_micro_batch, "evaluation");
  if (options.pipeline_parallel_size > 1) shape.capacities = {shape.limits.tokens};
  return with_fp8_capacities(std::move(shape), options);
}

Workspace trace_run(const LanguageSizes& sizes, const TrainingOptions& training) {
  Workspace workspace = training_workspace(training, *sizes.model, sizes.dtype);
  LossProgramOptions options{
      .compile = compile_options(training, *sizes.model, sizes.dtype, workspace, sizes.benchmark_bytes_held),
      .context_size = static_cast<int>(training.context_parallel_size),
      .dynamic = sizes.loss == SftLoss::kDft};
  const auto capacity_of = [&](const MicroBatchShape& shape, std::int64_t tokens) {
    // Ranks of a context group have as many rows, so that a program may have room for a few tokens more.
    return Capacity{tokens, std::min(shape.limits.documents, tokens + training.context_parallel_size - 1)};
  };
  if (sizes.model->stage() != nullptr) {
    const auto sized = [&](const MicroBatchShape& shape) {
      options.capacity = capacity_of(shape, shape.limits.tokens);
      return options;
    };
    add_stage_training(workspace, *sizes.model, sized(training_shape(sizes, training)), training.sums_in_programs(),
                       expert_gradients(training, *sizes.model));
    if (sizes.eval_steps) add_stage_evaluation(workspace, *sizes.model, sized(evaluation_shape(sizes, training)));
    return workspace;
  }
  const auto add = [&](const char* name, const MicroBatchShape& shape, auto trace, const ProgramUse& use) {
    const auto of = [&](std::int64_t tokens) {
      options.capacity = capacity_of(shape, tokens);
      return trace(*sizes.model, options);
    };
    add_sized(workspace, name, shape.capacities, of, use);
  };
  const MicroBatchShape shape = training_shape(sizes, training);
  if (options.compile.holds_fp8_weights && shape.capacities.size() > 1) {
    // Programs of all capacities hold the copies, or none does, or those that do not would have memory for less.
    options.capacity = {shape.capacities.back(), std::min(shape.limits.documents, shape.capacities.back())};
    options.compile.holds_fp8_weights = held_fp8_bytes(trace_training(*sizes.model, options)) > 0;
  }
  add(kTrainingProgram, shape, trace_training, training_use());
  add_quantization(workspace, training_use());
  if (training.sums_in_programs())
    add_summing_programs(workspace, training_use(), expert_gradients(training, *sizes.model));
  if (sizes.eval_steps) add(kEvaluationProgram, evaluation_shape(sizes, training), trace_evaluation, {});
  return workspace;
}

TokenRange token_range(const LanguageSizes& sizes, const TrainingOptions& options) {
  TokenRange range{training_shape(sizes, options).limits.tokens, sizes.steps.longest.tokens};
  // The key holds for evaluation too, whose sequences may be longer.
  if (sizes.eval_steps) range.least = std::max(range.least, sizes.eval_steps->longest.tokens);
  return range;
}

}  // namespace hone
