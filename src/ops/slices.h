// The number of SMs that a launch assumes if its results must not depend on the device.
#pragma once

namespace hone {

// Number of SMs of an H100 or H200 (SXM). Sums over rows are split into this many slices times the blocks that an SM
// holds. The number of slices fixes the order of a sum, and so its bits; it is therefore the same on every device.
// Kernels that have it compiled into their strides (AdamW's) give the same bits with any number; it affects their speed
// only. Grids that only cover work follow the device (CudaDevice::sm_count).
inline constexpr int kReductionSms = 132;

}  // namespace hone
