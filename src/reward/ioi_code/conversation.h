// Runs a program and its manager in separate sandboxes that are connected by named pipes (IOI Communication tasks).
#pragma once

#include <string_view>

#include "reward/ioi_code/ioi_problem.h"
#include "sandbox/runner.h"

namespace hone {

// Runs the manager on `input` together with `problem.processes` processes of the program, and returns the manager's
// result. `program` and `manager` are binaries. The arguments of the manager name its pipes as in the Contest
// Management System: for each process the pipe that the manager reads, then the pipe that it writes. The processes of
// the program are killed when the manager ends, and at the latest after three times limits.wall_time. Throws Error if
// the pipes cannot be created.
[[nodiscard]] SandboxResult converse(const Sandbox& sandbox, const IoiProblem& problem, std::string_view program,
                                     std::string_view manager, std::string_view input, const SandboxLimits& limits);

}  // namespace hone
