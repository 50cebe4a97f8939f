// Checks that a run fits the memory of its device, and suggests options that make it fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/device_memory.h"
#include "program/memory_fit.h"
#include "train/options.h"

namespace hone {

// Returns the bytes of activations that gradient_checkpointing: auto may use: activation_memory_gib if it is set;
// otherwise on a GPU the available memory minus `held`, the other bytes of the run, and 4 GiB on the host.
[[nodiscard]] std::size_t activation_budget(const TrainingOptions& options, std::size_t held);

// Returns the memory of the device that the options name: the device of a plan, or the current state of this machine's.
[[nodiscard]] DeviceMemory device_memory(const TrainingOptions& options);

// Returns the bytes that a run takes with other options. Throws Error if these do not fit the run.
using BytesWith = std::function<std::size_t(const TrainingOptions&)>;
// The tokens of a micro-batch, and the fewest that it may have: those of the longest sequence.
struct TokenRange {
  std::int64_t most = 0;
  std::int64_t least = 0;
};
// The memory of a run as a function of its options.
struct RunBytes {
  BytesWith with;
  TokenRange micro_batch = {};  // of a run whose micro-batches are cut by tokens; otherwise empty
};

// Changes options one after another, those with the smallest side effects first, until a run that takes `bytes` fits
// into `available` or nothing is left to change (program/memory_fit.h).
[[nodiscard]] std::vector<FitChange> changes_to_fit(const TrainingOptions& options, DType dtype, std::size_t available,
                                                    std::size_t bytes, const RunBytes& run);

// Returns a text that compares the bytes of a run with the available memory and, if the run does not fit, lists the
// changes that make it fit, each with the bytes that the run then takes. It has one line if the run fits, otherwise two
// or more.
[[nodiscard]] std::string memory_fit_text(const TrainingOptions& options, DType dtype, DeviceMemory there,
                                          std::size_t bytes, const RunBytes& run);
// Throws Error with this text on one line if the run does not fit the device.
void check_fits(const TrainingOptions& options, DType dtype, const Device& device, std::size_t bytes,
                const RunBytes& run);

}  // namespace hone
