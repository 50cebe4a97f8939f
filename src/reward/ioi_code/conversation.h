// A program and its manager, each in a sandbox of its own, that talk by named pipes.
#pragma once

#include <string_view>

#include "reward/ioi_code/ioi_problem.h"
#include "sandbox/runner.h"

namespace hone {

// The manager's result, which read `input`; `program` is ended, at its limit at the latest. The manager is told the
// pipes as in the Contest Management System: for each process the one that it reads, then the one that it writes.
// Throws Error where the pipes cannot be made.
[[nodiscard]] SandboxResult converse(const Sandbox& sandbox, const IoiProblem& problem, std::string_view program,
                                     std::string_view manager, std::string_view input, const SandboxLimits& limits);

}  // namespace hone
