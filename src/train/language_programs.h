// The programs of `hone pretrain` and `hone sft`, and what they are derived from.
#pragma once

#include <optional>

#include "data/micro_batches.h"
#include "train/loss_program.h"
#include "train/memory_fit.h"
#include "train/options.h"
#include "workspace/workspace.h"

namespace hone {

// The part of a run, in addition to the training options, that determines its programs.
struct LanguageSizes {
  const Model* model = nullptr;
  DType dtype = DType::kF32;
  SftLoss loss = SftLoss::kNll;
  StepSizes steps = {};
  std::optional<StepSizes> eval_steps = std::nullopt;  // kEvaluationBatches batches a step; unset: no evaluation
  std::size_t benchmark_bytes_held = 0;                // LanguageRun::benchmark_bytes_held
};

// Return the shapes of the micro-batches. Throw Error if a sequence is longer than max_tokens_per_micro_batch.
[[nodiscard]] MicroBatchShape training_shape(const LanguageSizes& sizes, const TrainingOptions& options);
[[nodiscard]] MicroBatchShape evaluation_shape(const LanguageSizes& sizes, const TrainingOptions& options);

// Traces kTrainingProgram, kEvaluationProgram (if there is evaluation data), each in the capacities of its shape, and
// the update into a workspace, whose memory() is then known. Allocates nothing.
[[nodiscard]] Workspace trace_run(const LanguageSizes& sizes, const TrainingOptions& options);

// Returns the micro-batch tokens between which a run may choose to fit its memory.
[[nodiscard]] TokenRange token_range(const LanguageSizes& sizes, const TrainingOptions& options);

}  // namespace hone
