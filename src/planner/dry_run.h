// --dry_run: everything up to the first step.
#pragma once

#include "planner/plan.h"

namespace hone {

// Checks the weights' shapes, the output folder and the memory, and prints the plan, the schedule and what a resume
// would start from, on standard output. Nothing is written. Returns the exit code, 0; throws Error.
int print_dry_run(const LanguageRun& run);
int print_dry_run(const GrpoRun& run);

}  // namespace hone
