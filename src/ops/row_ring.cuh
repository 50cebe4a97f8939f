// Ring buffer in shared memory that prefetches rows, for kernels whose blocks process one row after the other.
#pragma once

#include "ops/held_row.cuh"

namespace hone {

// An entry is a row of each of kArrays arrays, in dynamic shared memory. Each thread copies exactly what it will read
// itself, so that no barrier is needed. If a thread holds more or less than 16 bytes of a row, there is no ring (kAhead
// is 0) and rows are loaded when they are used.
template <class T, int kPack, int kHeld, int kArrays>
class RowRing {
 public:
  using Row = HeldRow<T, kPack, kHeld>;
  static constexpr bool kRings = sizeof(Pack<T, kPack>) == 16 && kHeld == 1;
  static constexpr int kAhead = kRings ? 2 : 0;  // rows that are prefetched

  // Returns the bytes of dynamic shared memory for a launch of the kernel, and allows the kernel that much.
  template <class Kernel>
  static std::size_t allow(Kernel* kernel, int threads) {
    if (!kRings) return 0;
    const std::size_t bytes = (kAhead + 1) * kArrays * static_cast<std::size_t>(threads) * sizeof(uint4);
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
               "cudaFuncSetAttribute");
    return bytes;
  }

  // Starts copying one array of the next row to prefetch.
  __device__ void fetch(int array, const T* row, int packs_a_row) {
    if constexpr (kRings) {
      const int i = static_cast<int>(threadIdx.x);
      copy_async16(shared_address(slot(fetching_, array)), row + (i < packs_a_row ? i * kPack : 0), i < packs_a_row);
    } else {
      late_[array] = row;
    }
  }
  // Ends the fetch of a row. It must be called for every iteration, even if there is no further row.
  __device__ void fetched() {
    if constexpr (kRings) {
      copy_async_commit();
      fetching_ = fetching_ == kAhead ? 0 : fetching_ + 1;
    }
  }
  // Waits for the next row, which is kAhead rows before the last one that was fetched.
  __device__ void next() {
    if constexpr (kRings) {
      copy_async_wait<kAhead>();
      reading_ = reading_ == kAhead ? 0 : reading_ + 1;
    }
  }
  // This thread's part of an array of the current row.
  [[nodiscard]] __device__ Row row(int array, int packs_a_row) const {
    Row held;
    if constexpr (kRings) {
      held.packs[0] = *reinterpret_cast<const typename Row::Held*>(slot(reading_, array));
    } else {
      held.load(late_[array], packs_a_row);
    }
    return held;
  }

 private:
  [[nodiscard]] __device__ static uint4* slot(int stage, int array) {
    extern __shared__ __align__(128) uint4 row_ring_slots[];  // [stage, array, thread]; warps fill whole lines
    return row_ring_slots + (stage * kArrays + array) * static_cast<int>(blockDim.x) + threadIdx.x;
  }

  int fetching_ = 0;
  int reading_ = kAhead;  // before the first row
  const T* late_[kArrays];
};

}  // namespace hone
