// Builds the parts that all kinds of training share from their options: data, tokenizer, workspace, compiler and
// optimizer settings.
#pragma once

#include "compile/compiler.h"
#include "data/source.h"
#include "data/token_cache.h"
#include "passes/sum_gradients.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "workspace/workspace.h"

namespace hone {

// Opens the training data: dataset_train_split of dataset_name, or dataset_mixture. Throws Error if it cannot be read.
[[nodiscard]] Source open_training_data(const DatasetOptions& options, SampleBy sample_by = SampleBy::kDocument);
// Opens the evaluation data. With eval_dataset_name: its dataset_test_split if its files are named by split, otherwise
// all of it. Without: the test part of dataset_mixture, or dataset_test_split of dataset_name. Throws Error that names
// the option which asks for an evaluation if there is no such data.
[[nodiscard]] Source open_eval_data(const DatasetOptions& options, const TrainingOptions& training,
                                    SampleBy sample_by = SampleBy::kDocument);

// Returns the cache of encoded data; it is read-only in a dry run.
[[nodiscard]] TokenCache token_cache_of(const DatasetOptions& options, const TrainingOptions& training);

// Loads tokenizer_name_or_path or, if it is not set, the tokenizer of the model. Throws Error if it cannot be read.
[[nodiscard]] Tokenizer tokenizer_of(const ModelOptions& options);

// Returns the name of a run in its log: "grpo", or "grpo NAME" if run_name is set.
[[nodiscard]] std::string run_title(std::string_view command, const TrainingOptions& options);

// Returns the kind of device on which the programs run, or would run if this is a plan.
[[nodiscard]] DeviceKind device_kind(const TrainingOptions& options);

// Returns the options with which programs are compiled. held: device bytes outside of the arena.
[[nodiscard]] CompileOptions compile_options(const TrainingOptions& options, const Model& model, DType dtype,
                                             std::size_t held);
// Returns the use of a program with gradients. Offloaded activations are stored in host memory.
[[nodiscard]] inline ProgramUse training_use() { return {.states = {.name = "activations", .region = Region::kTrain}}; }
// Returns a workspace with the weights of the model and the update program. Throws Error if weights of this dtype do
// not support the optimizer or the gradient dtype.
[[nodiscard]] Workspace training_workspace(const TrainingOptions& options, const Model& model, DType dtype);
// Returns the options with which the training programs of this workspace are compiled, the same on all ranks of a job.
// held: device bytes outside of the workspace.
[[nodiscard]] CompileOptions compile_options(const TrainingOptions& options, const Model& model, DType dtype,
                                             const Workspace& workspace, std::size_t held = 0);
// Returns true if checkpoints are evaluated by benchmarks.
[[nodiscard]] bool wants_benchmarks(const TrainingOptions& options);
// Returns the device bytes that benchmarks of checkpoints need in addition to the memory of the run; 0 without
// benchmarks.
[[nodiscard]] std::size_t benchmark_bytes_held(const TrainingOptions& options, const Model& model, DType dtype);
[[nodiscard]] OptimizerOptions optimizer_options(const TrainingOptions& options);
// Returns the gradients of divided experts, which programs sum over other ranks than the rest.
[[nodiscard]] ExpertGradients expert_gradients(const TrainingOptions& options, const Model& model);

}  // namespace hone
