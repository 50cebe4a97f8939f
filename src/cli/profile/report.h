// What a timeline says: where the time goes, how near to the device's limits, and what to do.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/device_model.h"
#include "cli/profile/timeline.h"
#include "core/json.h"

namespace hone {

// Operations that are alike. Of one step, on average.
struct KernelSummary {
  std::string op;
  std::string_view category;
  std::string module;  // layers as one
  std::string_view phase;
  std::string shapes;
  double runs = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
  double floor = 0;  // the least seconds by the device's limits, at most `seconds`: what was reached is possible

  [[nodiscard]] double achieved() const { return seconds > 0 ? floor / seconds : 0; }  // of what is possible
};

struct ShareOfStep {
  std::string name;
  double seconds = 0;
  double floor = 0;
};

struct ProfileReport {
  double step_seconds = 0;             // as profiled
  double unprofiled_step_seconds = 0;  // the same step as it is trained; 0 where it was not measured
  double between_seconds = 0;          // of step_seconds: outside of operations
  DeviceLimits limits;
  std::vector<KernelSummary> kernels;   // the slowest first
  std::vector<ShareOfStep> categories;  // those of kCategories that occur; sum to step_seconds, "other" holds what
                                        // lies between operations
  std::vector<ShareOfStep> modules;     // the slowest first
};

[[nodiscard]] ProfileReport make_report(const Timeline& timeline, const DeviceLimits& limits);

// What else advice depends on.
struct AdviceContext {
  bool tuned = false;  // --tune_gemm was on
  bool gpu = false;
  std::int64_t gradient_accumulation_steps = 1;
  std::string_view batch_key = "per_device_train_batch_size";
  bool can_shrink_states = false;  // AdamW with f32 states beside bfloat16 weights
};
// A sentence each.
[[nodiscard]] std::vector<std::string> advice(const ProfileReport& report, const AdviceContext& context);

[[nodiscard]] std::string to_text(const ProfileReport& report, std::size_t most = 30);
[[nodiscard]] Json to_json(const ProfileReport& report);

}  // namespace hone
