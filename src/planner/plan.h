// What a run will take, read off the very programs that it will execute.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rl/grpo_run.h"
#include "train/language_run.h"

namespace hone {

// How a run fits a GPU of some size.
struct DeviceFit {
  std::size_t memory = 0;  // of the GPU
  std::size_t bytes = 0;   // that the run takes, with the changed keys
  bool fits = false;
  std::vector<std::string> changes;  // "optim: adamw_8bit"; none where the run fits as it is
};

struct RunPlan {
  std::string command;
  std::string dtype;
  std::vector<std::pair<std::string, std::int64_t>> parameters;  // by part of the model
  MemoryBreakdown memory;                                        // equals what the run's device allocates
  std::string device;
  std::string fit;                          // whether the device has that much, and what would make it fit
  std::int64_t steps = 0;                   // 0: as many as the data will make
  std::int64_t tokens_per_micro_batch = 0;  // the capacity
  double flops_per_micro_batch = 0;         // forward and backward, at capacity
  double bytes_per_micro_batch = 0;         // read and written
  double seconds_per_micro_batch = 0;       // each node at the device's limits; 0 where they are not known
  std::string rates;                        // where these are from: "measured", "built-in"
  std::vector<DeviceFit> devices;           // where they were asked for, by size
};

// Bytes of memory of the GPUs that a plan compares.
inline constexpr std::size_t kComparedGpus[] = {std::size_t{24} << 30, std::size_t{48} << 30, std::size_t{80} << 30,
                                                std::size_t{141} << 30};

// `gpus`: sizes of other devices to answer for.
[[nodiscard]] RunPlan plan_run(const LanguageRun& run, std::span<const std::size_t> gpus = {});
[[nodiscard]] RunPlan plan_run(const GrpoRun& run, std::span<const std::size_t> gpus = {});
[[nodiscard]] std::string to_text(const RunPlan& plan);

// A model without its folder, and the type of the weights that it would have.
struct ModelSketch {
  std::unique_ptr<Model> model;
  DType dtype = DType::f32;
};
// Plans of runs whose data is not known: every sequence is taken to be as long as the keys allow, and the number of
// steps is max_steps or unknown. Throw Error.
[[nodiscard]] RunPlan plan_sketch(const PretrainOptions& options, ModelSketch sketch,
                                  std::span<const std::size_t> gpus = {});
[[nodiscard]] RunPlan plan_sketch(const SftOptions& options, ModelSketch sketch,
                                  std::span<const std::size_t> gpus = {});
[[nodiscard]] RunPlan plan_sketch(const GrpoOptions& options, const OptionInput& input, ModelSketch sketch,
                                  std::span<const std::size_t> gpus = {});

}  // namespace hone
