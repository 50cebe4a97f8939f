// Summarizes a timeline: where the time of a training step goes and how close each part is to the device's roofline.
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
  double data_seconds = 0;             // to read the batches of a step; not in step_seconds
  double start_seconds = 0;            // to read and encode the data before the first step
  double cached_start_seconds = 0;     // the same at a later start with token_cache: true; 0 if it was not tried
  double total_steps = 0;              // of the whole run; 0 if it is not known
  double tokens_per_step = 0;
  DeviceLimits limits;
  std::vector<KernelSummary> kernels;   // slowest first
  std::vector<ShareOfStep> categories;  // slowest first; the sum is step_seconds. "other" includes the time between
                                        // operations
  std::vector<ShareOfStep> modules;     // slowest first

  // Returns the part of a step in which the device waits for the host: without the profiler if that was measured.
  [[nodiscard]] double host_seconds() const;
};

// Summarizes a timeline of at least one step.
[[nodiscard]] ProfileReport make_report(const Timeline& timeline, const DeviceLimits& limits);

// Returns the operations other than GEMMs that take more than 2% of a step, slowest first. Each is a candidate for
// fusion or for a faster kernel.
[[nodiscard]] std::vector<const KernelSummary*> candidates(const ProfileReport& report);

// Returns the report as tables for a terminal, with the `most` slowest kernels.
[[nodiscard]] std::string to_text(const ProfileReport& report, std::size_t most = 30);
// Returns the content of kernel_summary.json.
[[nodiscard]] Json to_json(const ProfileReport& report);

}  // namespace hone
