// Explains a change of an operation's rate by the hardware events that two profiles counted.
#pragma once

#include <string>

#include "core/json.h"

namespace hone {

// Returns the figure that changed most in the direction that explains the change, such as "fewer instructions per
// cycle: 1.2, down from 2.4"; empty if none changed by kLeastCountedChange. before, after: rows of "counters" in
// kernel_summary.json, or null. work: that of a call after / before, which explains as much of what a call counts.
// slower: the rate is lower in `after`.
//
// On a CPU the time of a call is instructions / (instructions per cycle x cycles per second x cores), so these four
// explain all of it. On a GPU the figures are not factors of the time; the largest change is a hint.
[[nodiscard]] std::string counted_reason(const Json& before, const Json& after, double work, bool slower);
inline constexpr double kLeastCountedChange = 0.03;  // of the logarithm

}  // namespace hone
