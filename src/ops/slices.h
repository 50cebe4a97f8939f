// The multiprocessors that launches are laid out for where they must not follow the device.
#pragma once

namespace hone {

// Multiprocessors of an H100 or H200 (SXM). Sums over rows go over so many slices, times the blocks that each holds:
// the number fixes the order of the sums, and so their bits, and stays the same on every device, whatever it has.
// Kernels into whose strides it is compiled (AdamW's) give the same bits with any; there it is a matter of speed alone.
// Grids that only cover work follow the device (CudaDevice::multiprocessors).
inline constexpr int kSlicedMultiprocessors = 132;

}  // namespace hone
