// The training steps that hone profile measures, and how to open the same steps with other settings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/training_step.h"
#include "cli/command.h"
#include "core/options.h"
#include "workspace/workspace.h"

namespace hone {

// Options of hone profile.
struct ProfileOptions : StepOptions {
  std::int64_t num_steps = 5;
  std::int64_t warmup_steps = 3;
  std::int64_t trial_steps = 3;
  double limit_seconds = 0.5;
  bool counters = true;
  std::vector<std::string> compare;
  std::string output_dir = "runs/profile";

  template <class Visitor>
  void fields(Visitor& v) {
    StepOptions::fields(v);
    v.group("Profile");
    v("num_steps", num_steps, "Steps to profile", within(1, 1000));
    v("warmup_steps", warmup_steps, "Warm-up steps before them", within(2, 1000));
    v("trial_steps", trial_steps,
      "Steps that each advised setting is tried for, to measure what it gains; 0: advice without trials",
      within(0, 1000));
    v("limit_seconds", limit_seconds,
      "Seconds to measure each limit of the device; unset: use stored limits of this machine, otherwise 0.5", above(0));
    v("counters", counters,
      "Count hardware events of each operation in further steps: cycles, instructions and cache misses of a CPU "
      "(perf_event_open); DRAM bytes, use of tensor cores, occupancy and L2 hits of a GPU's kernels (CUPTI)");
    v("compare", compare,
      "Two folders of profiles, or their kernel_summary.json: print what became slower or faster; nothing is profiled");
    v("output_dir", output_dir, "Folder for chrome_trace.json and kernel_summary.json");
  }
};

extern const CommandText kProfileText;

// Settings of the steps that advice depends on.
struct StepSettings {
  bool of_recipe = false;     // keys are those of a recipe, otherwise those of hone profile
  bool packs = true;          // false: sft that does not pack
  bool caches_tokens = true;  // false: token_cache is off
  bool recomputes = false;    // gradient_checkpointing: true
  bool offloads = false;      // activation_offloading: true
  bool tuned = false;         // --tune_gemm was on
  bool gpu = false;
  DType dtype = DType::kF32;
  OptimizerType optim = OptimizerType::kAdamw;
  std::int64_t batch_size = 1;
  std::int64_t accumulation = 1;
};

// Model, programs and data of the steps.
struct Subject {
  std::string title;
  std::unique_ptr<Model> model;
  std::optional<Workspace> workspace = std::nullopt;
  OptimizerOptions optimizer;
  DType dtype = DType::kF32;
  Device* device = nullptr;
  std::vector<std::vector<HostBatch>> steps;  // [distinct steps][micro-batches]; used in turn
  double start_seconds = 0;                   // until the data were ready
  std::int64_t total_steps = 0;               // of the recipe's run; 0: of a known shape
  double data_seconds = 0;                    // of a step, to read its batches
  StepSettings settings;

  // Returns the tokens of one step, averaged over the steps.
  [[nodiscard]] double tokens_per_step() const;
  [[nodiscard]] std::span<const HostBatch> step(std::int64_t index) const {
    return steps[static_cast<std::size_t>(index) % steps.size()];
  }
};

// Changed settings as command-line flags: {"--packing", "true"}.
using Settings = std::vector<std::string>;
// Returns them as a recipe writes them: "packing: true, torch_dtype: bfloat16".
[[nodiscard]] std::string settings_text(const Settings& settings);

// A recipe and the flags of hone profile that change it.
struct RecipeSource {
  std::string file;
  ProfileOptions profile;
  OptionInput flags;
};
// Reads a recipe with these changes into `options`, of which `table` is the table; device, tune_gemm and gemm_table are
// those of the flags if they are set there. Throws Error for a flag that describes the step of a known shape.
[[nodiscard]] OptionInput read_recipe(const RecipeSource& source, const Settings& changes, const OptionTable& table,
                                      TrainingOptions& options);

// Opens the steps with these changes; none: as the command line describes them. Throws Error if a setting does not fit
// the others or the memory of the device.
using OpenSubject = std::function<Subject(const Settings& changes)>;
// Returns how to open the steps of a command line: of a known shape, or of a recipe of pretrain or sft on its data.
[[nodiscard]] OpenSubject subject_source(const ProfileOptions& options, const OptionInput& input);

}  // namespace hone
