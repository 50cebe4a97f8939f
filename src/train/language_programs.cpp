#include "train/language_programs.h"

#include <algorithm>

#include "core/error.h"
#include "train/setup.h"
#include "train/stage_programs.h"

namespace hone {

MicroBatchShape training_shape(const LanguageSizes& sizes, const TrainingOptions& options) {
  MicroBatchShape shape = micro_batch_shape(sizes.steps, options.max_tokens_per_micro_batch, "training");
  // Offloaded activations and what stages exchange are states, whose types are those of one capacity.
  if (options.activation_offloading || options.pipeline_parallel_size > 1) shape.capacities = {shape.limits.tokens};
  return shape;
}

MicroBatchShape evaluation_shape(const LanguageSizes& sizes, const TrainingOptions& options) {
  HONE_ASSERT(sizes.eval_steps.has_value(), "the run has no evaluation");
  MicroBatchShape shape = micro_batch_shape(*sizes.eval_steps, options.max_tokens_per_micro_batch, "evaluation");
  if (options.pipeline_parallel_size > 1) shape.capacities = {shape.limits.tokens};
  return shape;
}

Workspace trace_run(const LanguageSizes& sizes, const TrainingOptions& training) {
  Workspace workspace = training_workspace(training, *sizes.model, sizes.dtype);
  LossProgramOptions options{
      .compile = compile_options(training, *sizes.model, sizes.dtype, workspace, sizes.benchmark_bytes_held),
      .dynamic = sizes.loss == SftLoss::kDft};
  if (sizes.model->stage() != nullptr) {
    const auto sized = [&](const MicroBatchShape& shape) {
      options.capacity = {shape.limits.tokens, std::min(shape.limits.documents, shape.limits.tokens)};
      return options;
    };
    add_stage_training(workspace, *sizes.model, sized(training_shape(sizes, training)), training.sums_in_programs());
    if (sizes.eval_steps) add_stage_evaluation(workspace, *sizes.model, sized(evaluation_shape(sizes, training)));
    return workspace;
  }
  const auto add = [&](const char* name, const MicroBatchShape& shape, auto trace, const ProgramUse& use) {
    const auto of = [&](std::int64_t tokens) {
      options.capacity = {tokens, std::min(shape.limits.documents, tokens)};
      return trace(*sizes.model, options);
    };
    add_sized(workspace, name, shape.capacities, of, use);
  };
  add(kTrainingProgram, training_shape(sizes, training), trace_training, training_use());
  if (training.sums_in_programs()) add_summing_programs(workspace, training_use());
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
