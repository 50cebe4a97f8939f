// From the options that all kinds of training share to what a run is built of.
#pragma once

#include "compile/compiler.h"
#include "data/source.h"
#include "data/token_cache.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "workspace/workspace.h"

namespace hone {

// The data to train on: dataset_train_split of dataset_name, or what dataset_mixture makes. Throws Error.
[[nodiscard]] Source open_training_data(const DatasetOptions& options, SampleBy sample_by = SampleBy::document);
// The data to evaluate on: the test part of dataset_mixture; or eval_dataset_name, or dataset_test_split of it where
// its names say splits; without such a name dataset_test_split of dataset_name. Throws Error, naming eval_strategy
// where there is nothing.
[[nodiscard]] Source open_eval_data(const DatasetOptions& options, const TrainingOptions& training,
                                    SampleBy sample_by = SampleBy::document);

// Where encoded data is kept; nothing is written at a dry run.
[[nodiscard]] TokenCache token_cache_of(const DatasetOptions& options, const TrainingOptions& training);

// The model's tokenizer, or the one that the options name. Throws Error.
[[nodiscard]] Tokenizer tokenizer_of(const ModelOptions& options);

// How a run is named in its log: "grpo", or "grpo NAME" where run_name is set.
[[nodiscard]] std::string run_title(std::string_view command, const TrainingOptions& options);

// Where the options' programs run, or would run.
[[nodiscard]] DeviceKind device_kind(const TrainingOptions& options);

// How the options' programs are compiled. `held`: bytes of the device that are not the arena's.
[[nodiscard]] CompileOptions compile_options(const TrainingOptions& options, DType dtype, std::size_t held);
// How a program with gradients is used: what it offloads waits in the host's memory.
[[nodiscard]] inline ProgramUse training_use() { return {.states = {.name = "activations", .region = Region::train}}; }
// What every kind of training has: the model's weights, and the update of those that are trained. Throws Error where
// optimizer or gradients are of a type that weights of `dtype` cannot have.
[[nodiscard]] Workspace training_workspace(const TrainingOptions& options, const Model& model, DType dtype);
// What benchmarks of checkpoints take beside a run's own memory; 0 where there are none.
[[nodiscard]] std::size_t beside_bytes(const TrainingOptions& options, const Model& model, DType dtype);
[[nodiscard]] OptimizerOptions optimizer_options(const TrainingOptions& options);

}  // namespace hone
