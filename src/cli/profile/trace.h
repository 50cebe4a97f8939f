// Exports a timeline in Chrome's trace event format.
#pragma once

#include <string_view>

#include "cli/profile/timeline.h"
#include "core/json.h"

namespace hone {

// Returns the timeline in Chrome's trace event format, which ui.perfetto.dev opens: a row for the steps, one for the
// modules and one for the operations, and counters of the bytes in use and of the FLOPs and bytes per second. If the
// device runs behind the host, a further row holds the launches, from each of which a flow leads to its operation.
// Times are whole nanoseconds.
[[nodiscard]] Json chrome_trace(const Timeline& timeline, std::string_view title);

}  // namespace hone
