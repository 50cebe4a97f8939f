// Plans a run before it starts: parameters, memory, work and time, all computed from the programs that the run will
// execute.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rl/grpo_run.h"
#include "train/language_run.h"

namespace hone {

// Tells if and how a run fits a GPU of a given memory size.
struct DeviceFit {
  std::size_t memory = 0;  // bytes of GPU memory
  std::size_t bytes = 0;   // bytes that the run takes, after `changes`
  bool fits = false;
  std::vector<std::string> changes;  // keys to change, as in "optim: adamw_8bit"; empty if the run fits as it is
};

// A stage of a pipeline and what its processes allocate.
struct StagePlan {
  // Ranges of layers, each with the layer after its last one; one for each chunk.
  std::vector<std::pair<std::int64_t, std::int64_t>> layers = {};
  std::size_t bytes = 0;
};

struct RunPlan {
  std::string command;
  std::string dtype;
  std::vector<std::pair<std::string, std::int64_t>> parameters;  // number of parameters for each part of the model
  // Equals what the run allocates on its device; of a pipeline, what the largest stage does.
  MemoryBreakdown memory;
  std::vector<StagePlan> stages = {};  // of a pipeline
  std::size_t largest_stage = 0;       // to which the memory and the work of a micro-batch belong
  std::string device;
  std::string fit;                          // if the run fits the device, and changes that would make it fit
  std::int64_t steps = 0;                   // optimizer steps; 0: depends on the data
  std::int64_t tokens_per_micro_batch = 0;  // capacity of a micro-batch
  double flops_per_micro_batch = 0;         // FLOP, forward and backward, at capacity
  double bytes_per_micro_batch = 0;         // bytes read and written
  double seconds_per_micro_batch = 0;       // roofline time, summed over all nodes; 0: device rates are unknown
  std::string rates;                        // origin of the device rates: "measured" or "built-in"
  std::vector<DeviceFit> devices;           // one for each size in the argument `gpus`
};

// Memory sizes of common GPUs, in bytes: 24, 48, 80 and 141 GiB.
inline constexpr std::size_t kComparedGpus[] = {std::size_t{24} << 30, std::size_t{48} << 30, std::size_t{80} << 30,
                                                std::size_t{141} << 30};

// Plans a prepared run. `gpus`: memory sizes in bytes of further GPUs to check the run against.
[[nodiscard]] RunPlan plan_run(const LanguageRun& run, std::span<const std::size_t> gpus = {});
[[nodiscard]] RunPlan plan_run(const GrpoRun& run, std::span<const std::size_t> gpus = {});
[[nodiscard]] std::string to_text(const RunPlan& plan);

// A model without weights, and the dtype that its weights would have.
struct ModelSketch {
  std::unique_ptr<Model> model;
  DType dtype = DType::kF32;
};
// Plans a run whose data is unknown: every sequence is assumed to be as long as the options allow, and the number of
// steps is max_steps or unknown (0). Throws Error if the options contradict each other or exceed the model's positions.
[[nodiscard]] RunPlan plan_sketch(const PretrainOptions& options, ModelSketch sketch,
                                  std::span<const std::size_t> gpus = {});
[[nodiscard]] RunPlan plan_sketch(const SftOptions& options, ModelSketch sketch,
                                  std::span<const std::size_t> gpus = {});
[[nodiscard]] RunPlan plan_sketch(const GrpoOptions& options, const OptionInput& input, ModelSketch sketch,
                                  std::span<const std::size_t> gpus = {});

}  // namespace hone
