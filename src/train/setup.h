// From the options that all kinds of training share to what a run is built of.
#pragma once

#include "train/loss_program.h"
#include "train/memory.h"
#include "train/options.h"

namespace hone {

[[nodiscard]] LossProgramOptions loss_program_options(const TrainingOptions& options, const Capacity& capacity,
                                                      DType dtype);
[[nodiscard]] OptimizerOptions optimizer_options(const TrainingOptions& options);

// Asserts that the device holds `before` bytes and the plan's, now that a run has allocated all that it will.
void check_plan(const Device& device, std::size_t before, const MemoryBreakdown& memory);

}  // namespace hone
