// Turns a training run into a job of several processes: determines their number and their launcher, and what they must
// agree on before the first step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/device.h"
#include "core/options.h"
#include "model/model.h"
#include "system/job_place.h"
#include "system/launcher.h"
#include "train/job.h"
#include "train/options.h"

namespace hone {

// Returns the processes of the run in all: those that a launcher has started, otherwise num_processes, otherwise those
// of config_file. Throws Error if num_processes contradicts the launcher.
[[nodiscard]] std::int64_t processes_of(const TrainingOptions& options, const JobPlace& place);

// Sets the keys of layouts that config_file sets (accelerate's division_of()) and the user does not.
void apply_launch_file(TrainingOptions& options, const OptionInput& input);
// Returns the first key of layouts, which divide a model or its batches, that the user has set or config_file sets,
// after apply_launch_file(); nullopt if there is none.
[[nodiscard]] std::optional<std::string> layout_key_set(const TrainingOptions& options, const OptionInput& input);
// Throws Error if the processes are no multiple of tensor_parallel_size, pipeline_parallel_size, expert_parallel_size
// and context_parallel_size together, or if an option does not support it, such as benchmarks, which need whole
// weights.
void check_mesh(const TrainingOptions& options);
// Returns what this process has of the model: a rank's part of it if tensor_parallel_size or expert_parallel_size
// divides it, a stage of that if pipeline_parallel_size does, otherwise the model itself. Throws Error if the model
// cannot be divided so, or if weights are divided and the model has an adapter.
[[nodiscard]] std::unique_ptr<Model> divided_model(const TrainingOptions& options, std::unique_ptr<Model> model);

// Returns the processes that hone itself must start on this machine; of count 0 if a launcher has started them, or if
// there is only one. Throws Error if config_file does not divide the processes evenly over machines.
[[nodiscard]] LocalRanks ranks_to_start(const TrainingOptions& options, const JobPlace& place);

// Throws Error that names the first rank with other options than rank 0. Sets options.agreed_memory to the least memory
// of the job's devices, so that all ranks compile the same programs. options_json: the values in effect.
void agree(const Job& job, TrainingOptions& options, const std::string& options_json, const Device& device);

}  // namespace hone
