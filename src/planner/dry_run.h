// The option --dry_run: prepares and checks a run without training.
#pragma once

#include "planner/plan.h"

namespace hone {

// Checks the shapes of the weights, the output folder and the memory, and prints the plan, the learning-rate schedule
// and the checkpoint that the run would resume from to standard output. Writes no file. Returns the exit code 0; throws
// Error if a check fails.
int print_dry_run(const LanguageRun& run);
int print_dry_run(const GrpoRun& run);

}  // namespace hone
