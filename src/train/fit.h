// Whether a run fits the memory of its device, and which keys would make it fit.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "backend/device_memory.h"
#include "program/memory_fit.h"
#include "train/options.h"

namespace hone {

// Bytes of the arena that gradient_checkpointing: auto keeps to: activation_memory_gib where it is set; else, on a GPU,
// what is available beyond the bytes that the run holds besides, and 4 GiB on the host.
[[nodiscard]] std::size_t activation_budget(const TrainingOptions& options, std::size_t held);

// What the device of the options has: the one that a plan asks about, or the machine's, now.
[[nodiscard]] DeviceMemory device_memory(const TrainingOptions& options);

// The bytes that a run would take with other options; throws Error where they do not go together with the run.
using BytesWith = std::function<std::size_t(const TrainingOptions&)>;

// Keys changed one after another, the mildest first, until a run of `bytes` fits, or nothing is left to change
// (program/memory_fit.h).
[[nodiscard]] std::vector<FitChange> changes_to_fit(const TrainingOptions& options, DType dtype, std::size_t available,
                                                    std::size_t bytes, const BytesWith& bytes_with);

// What a run takes beside what there is, and, where it is too much, what would mend it: keys changed one after another,
// the mildest first, with the bytes that the run then takes. Two lines or more.
[[nodiscard]] std::string fit_text(const TrainingOptions& options, DType dtype, DeviceMemory there, std::size_t bytes,
                                   const BytesWith& bytes_with);
// Throws Error, which says the same on one line, where the run does not fit.
void check_fits(const TrainingOptions& options, DType dtype, const Device& device, std::size_t bytes,
                const BytesWith& bytes_with);

}  // namespace hone
