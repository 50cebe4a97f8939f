// Compares two ranges of GPU memory.
#pragma once

#include <cstddef>

#include "backend/gpu/runtime.h"

namespace hone {

// Adds the number of 4-byte words that differ to *count, on the device. `bytes` is a multiple of 4.
void count_differences(const void* a, const void* b, std::size_t bytes, unsigned long long* count, cudaStream_t stream);

}  // namespace hone
