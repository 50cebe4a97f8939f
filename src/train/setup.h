// From the options that all kinds of training share to what a run is built of.
#pragma once

#include "data/source.h"
#include "data/token_cache.h"
#include "train/loss_program.h"
#include "train/memory.h"
#include "train/options.h"

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

// `held`: what the run takes of its device besides the arena. Throws Error where optimizer or gradients are of a type
// that weights of `dtype` cannot have.
[[nodiscard]] LossProgramOptions loss_program_options(const TrainingOptions& options, const Capacity& capacity,
                                                      DType dtype, const MemoryBreakdown& held);
// What benchmarks of checkpoints take beside a run's own memory; 0 where there are none.
[[nodiscard]] std::size_t beside_bytes(const TrainingOptions& options, const Model& model, DType dtype);
// `held`, with `bytes` that are to stay free.
[[nodiscard]] MemoryBreakdown with_room(MemoryBreakdown held, std::size_t bytes);
// Where the activations that a program offloads wait; empty where it offloads none. Bound as its states.
[[nodiscard]] TensorStore offload_store(Device& device, const Program& program);
[[nodiscard]] OptimizerOptions optimizer_options(const TrainingOptions& options);

// Asserts that the device holds `before` bytes and the plan's, now that a run has allocated all that it will.
void check_plan(const Device& device, std::size_t before, const MemoryBreakdown& memory);

}  // namespace hone
