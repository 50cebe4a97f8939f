// Advice for a run that does not fit a device's memory: which changes of options, tried in order, would make it fit.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/device_memory.h"

namespace hone {

// Returns the bytes that a run takes with the first `count` changes.
using BytesAfter = std::function<std::size_t(std::size_t count)>;

// A change of an option and the bytes that a run takes with it and all changes before it.
struct FitChange {
  std::string text;  // "optim: adamw_8bit"
  std::size_t bytes = 0;
};
// Applies the changes one after another until the run fits into `available` bytes or no change is left, and returns
// those that save memory. A change that saves none is omitted from the result but stays applied. `bytes` is the size of
// the run without changes.
[[nodiscard]] std::vector<FitChange> changes_to_fit(std::span<const std::string> changes, std::size_t available,
                                                    std::size_t bytes, const BytesAfter& bytes_after);

// Returns "31.20 GiB are already in use, ...; " if at least 1 GiB is in use and the run would fit into an empty device,
// otherwise an empty text.
[[nodiscard]] std::string memory_in_use_text(DeviceMemory there, std::size_t bytes);
// Formats "it fits with gradient_checkpointing: true (takes 31.20 GiB), then optim: adamw_bf16 (takes 20.00 GiB)", or a
// text that says that these changes are not enough.
[[nodiscard]] std::string advice_text(std::span<const FitChange> changes, std::size_t available);

}  // namespace hone
