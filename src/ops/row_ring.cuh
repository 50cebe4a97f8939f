// Rows on their way from memory to a block, several of them at a time, for kernels that go over one row after the
// other.
#pragma once

#include "backend/cuda/mma.cuh"
#include "ops/held_row.cuh"

namespace hone {

// A row is one of each array and kNumbers numbers. They lie in dynamic shared memory, where every thread copies what it
// will read itself, and every warp the numbers, so that none waits for others. Rows whose threads hold more or less
// than 16 bytes are loaded when they are wanted, past the ring: then kAhead is 0.
template <class T, int kPack, int kHeld, int kArrays, int kNumbers>
class RowRing {
 public:
  using A = CudaAccumulator<T>;
  using Row = HeldRow<T, kPack, kHeld>;
  static constexpr bool kRings = sizeof(Pack<T, kPack>) == 16 && kHeld == 1;
  static constexpr int kAhead = kRings ? 2 : 0;  // rows that are fetched before the first is wanted

  // Bytes of shared memory that a launch of the kernel needs, which it is allowed from now on.
  template <class Kernel>
  static std::size_t allow(Kernel* kernel, int threads) {
    if (!kRings) return 0;
    const std::size_t row = kArrays * static_cast<std::size_t>(threads) * sizeof(uint4) +
                            kNumbers * static_cast<std::size_t>(threads / 32) * sizeof(A);
    const std::size_t bytes = (kAhead + 1) * row;
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
               "cudaFuncSetAttribute");
    return bytes;
  }

  // Starts to copy an array's part of the row behind those that were fetched.
  __device__ void fetch(int array, const T* row, int packs_a_row) {
    if constexpr (kRings) {
      const int i = static_cast<int>(threadIdx.x);
      copy_async16(shared_address(slot(fetching_, array)), row + (i < packs_a_row ? i * kPack : 0), i < packs_a_row);
    } else {
      late_[array] = row;
    }
  }
  // The same of a number. Were it loaded into a register a row ahead, the compiler could wait for it at once, to have
  // what all lanes share in a uniform register.
  __device__ void fetch_number(int which, const A* number) {
    if constexpr (kRings) {
      __syncwarp();  // all lanes have read what lay there
      if (threadIdx.x % 32 != 0) return;
      const std::uint32_t to = shared_address(number_slot(fetching_, which));
#pragma unroll
      for (int byte = 0; byte < static_cast<int>(sizeof(A)); byte += 4) {
        copy_async4(to + static_cast<std::uint32_t>(byte), reinterpret_cast<const char*>(number) + byte, true);
      }
    } else {
      late_numbers_[which] = number;
    }
  }
  // That row has all its arrays and numbers, or there is no further one.
  __device__ void fetched() {
    if constexpr (kRings) {
      copy_async_commit();
      fetching_ = fetching_ == kAhead ? 0 : fetching_ + 1;
    }
  }
  // Waits for the next row in turn, kAhead behind the last that was fetched.
  __device__ void next() {
    if constexpr (kRings) {
      copy_async_wait<kAhead>();
      __syncwarp();
      reading_ = reading_ == kAhead ? 0 : reading_ + 1;
    }
  }
  [[nodiscard]] __device__ Row row(int array, int packs_a_row) const {
    Row held;
    if constexpr (kRings) {
      held.packs[0] = *reinterpret_cast<const typename Row::Held*>(slot(reading_, array));
    } else {
      held.load(late_[array], packs_a_row);
    }
    return held;
  }
  [[nodiscard]] __device__ A number(int which) const {
    if constexpr (kRings) {
      return *number_slot(reading_, which);
    } else {
      return *late_numbers_[which];
    }
  }

 private:
  [[nodiscard]] __device__ static uint4* slots() {
    extern __shared__ __align__(128) uint4 row_ring_slots[];  // a warp's copies fill whole lines
    return row_ring_slots;
  }
  [[nodiscard]] __device__ static uint4* slot(int stage, int array) {
    return slots() + (stage * kArrays + array) * static_cast<int>(blockDim.x) + threadIdx.x;
  }
  [[nodiscard]] __device__ static A* number_slot(int stage, int which) {
    const int threads = static_cast<int>(blockDim.x);
    A* numbers = reinterpret_cast<A*>(slots() + (kAhead + 1) * kArrays * threads);
    return numbers + (stage * kNumbers + which) * (threads / 32) + static_cast<int>(threadIdx.x) / 32;
  }

  int fetching_ = 0;
  int reading_ = kAhead;  // before the first row
  const T* late_[kArrays];
  const A* late_numbers_[kNumbers];
};

}  // namespace hone
