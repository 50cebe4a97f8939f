// Summarizes a timeline: where the time of a training step goes, how close each part is to the device's roofline, and
// what to change.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/device_model.h"
#include "cli/profile/timeline.h"
#include "core/json.h"

namespace hone {

// Operations with the same name, module, phase and shapes. All numbers are totals per step, averaged over the steps.
struct KernelSummary {
  std::string op;
  std::string_view category;
  std::string module;  // without layer numbers: "layers.*.mlp"
  std::string_view phase;
  std::string shapes;
  double runs = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
  double floor = 0;  // least seconds by the roofline; never above `seconds`, because measured limits are inexact

  // Fraction of the roofline that was reached, 0 to 1.
  [[nodiscard]] double achieved() const { return seconds > 0 ? floor / seconds : 0; }
};

// Time of a category or a module per step.
struct ShareOfStep {
  std::string name;
  double seconds = 0;
  double floor = 0;
};

struct ProfileReport {
  double step_seconds = 0;             // mean of the profiled steps
  double unprofiled_step_seconds = 0;  // mean of the same steps without the profiler; 0 if they were not measured
  double between_seconds = 0;          // part of step_seconds in which no operation ran
  DeviceLimits limits;
  std::vector<KernelSummary> kernels;   // slowest first
  std::vector<ShareOfStep> categories;  // slowest first; the sum is step_seconds. "other" includes the time between
                                        // operations
  std::vector<ShareOfStep> modules;     // slowest first
};

// Summarizes a timeline of at least one step.
[[nodiscard]] ProfileReport make_report(const Timeline& timeline, const DeviceLimits& limits);

// Settings of the run that the advice depends on.
struct AdviceContext {
  bool tuned = false;  // --tune_gemm was on
  bool gpu = false;
  std::int64_t gradient_accumulation_steps = 1;
  std::string_view batch_key = "per_device_train_batch_size";  // key that sets the size of a micro-batch
  bool can_shrink_states = false;                              // AdamW with f32 states and bfloat16 weights
};
// Returns suggestions for a faster step, one sentence each.
[[nodiscard]] std::vector<std::string> advice(const ProfileReport& report, const AdviceContext& context);

// Returns the report as tables for a terminal, with the `most` slowest kernels.
[[nodiscard]] std::string to_text(const ProfileReport& report, std::size_t most = 30);
// Returns the content of kernel_summary.json.
[[nodiscard]] Json to_json(const ProfileReport& report);

}  // namespace hone
