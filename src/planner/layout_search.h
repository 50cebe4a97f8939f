// Searches the layouts of a run over several processes for the fastest ones whose memory fits the devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/layout_plan.h"

namespace hone {

// Layouts in the order of their predicted time, the fastest first.
struct LayoutRanking {
  std::vector<LayoutPlan> layouts;  // those that fit, planned from their programs; at most as many as were asked for
  std::size_t allowed = 0;          // layouts that the options and the model allow
  std::size_t too_large = 0;        // of them, those that do not fit, as far as they were looked at
};

// Layouts of a table.
inline constexpr std::size_t kRankedLayouts = 10;

// Estimates all layouts that the options and the model allow, and plans those with the best estimates until `count` of
// them fit and no other is likely to be among the first; count 0: all. The same problem has the same ranking. Throws
// Error if no layout is allowed, or none fits; the message names the layout that takes the least memory.
[[nodiscard]] LayoutRanking rank_layouts(const LayoutProblem& problem, std::size_t count = kRankedLayouts);

// Tokens per second and device.
[[nodiscard]] double tokens_per_second(const LayoutProblem& problem, const LayoutPlan& plan);
// Returns "GEMMs 61%, attention 10%, other kernels 9%, ...": what the time of a step consists of, the largest first,
// without what takes less than 1%.
[[nodiscard]] std::string reason_of(const StepTime& time);
// Returns the line "a step on H200: 2914 ms, 11246 tokens/s a device, MFU 58.5%: GEMMs 74%, ..." of a planned layout.
[[nodiscard]] std::string step_text(const LayoutProblem& problem, const LayoutPlan& plan);
// Returns the table of a ranking, with the keys of the first layout.
[[nodiscard]] std::string to_text(const LayoutRanking& ranking, const LayoutProblem& problem);

}  // namespace hone
