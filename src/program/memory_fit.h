// Whether something fits a device's memory, and which changes, tried in order, would make it fit.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/device_memory.h"

namespace hone {

// Bytes that are taken with the first `count` changes.
using BytesAfter = std::function<std::size_t(std::size_t count)>;

// A change, and the bytes that are taken with it and with those before it.
struct FitChange {
  std::string text;  // "optim: adamw_8bit"
  std::size_t bytes = 0;
};
// The changes one after another, until `bytes`, taken without any, fit into `available` or all are made. Those that
// save nothing are left out, and stay made.
[[nodiscard]] std::vector<FitChange> changes_to_fit(std::span<const std::string> changes, std::size_t available,
                                                    std::size_t bytes, const BytesAfter& bytes_after);

// "31.20 GiB are in use already: freed, it would fit; ", where that is so; else nothing.
[[nodiscard]] std::string in_use_text(DeviceMemory there, std::size_t bytes);
// "it fits with gradient_checkpointing: true (takes 31.20 GiB), then optim: adamw_bf16 (takes 20.00 GiB)"
[[nodiscard]] std::string advice_text(std::span<const FitChange> changes, std::size_t available);

}  // namespace hone
