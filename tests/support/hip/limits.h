// Sizes of the emulated GPU.
#pragma once

#include <cstddef>

namespace hone::emulation {

// Shared memory of a block. It is more than a GPU of AMD has (64 KiB, 160 KiB), so that attention to wide heads in f64
// fits, in which the tests of operations compute their reference.
inline constexpr std::size_t kSharedBytes = std::size_t{192} << 10;

}  // namespace hone::emulation
