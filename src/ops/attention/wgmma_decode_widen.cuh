// The warpgroup of wgmma_decode.cuh that widens tiles of FP8 pages from stages of bytes to stages of bf16, in the order
// in which they are copied and used.
#pragma once

#include "ops/attention/wgmma_decode_compute.cuh"

namespace hone {

template <class Plan>
struct DecodeWiden {
  std::uint32_t shared;
  ForwardBarriers bytes_barriers;
  WidenedBarriers barriers;
  int block_shift;  // log2 of the rows of a page
  ForwardRing<Plan::kByteStages> bytes;
  ForwardRing<Plan::kStages> wide;

  // Widens the next tile of keys or of values. A thread has eight columns of every kStep-th row. Rows after the last
  // key are of whatever bytes are there.
  __device__ void tile() {
    constexpr int kChunks = Plan::kWidth / 8;
    constexpr int kStep = Plan::kWideners / kChunks;
    const int thread = static_cast<int>(threadIdx.x) - Plan::kConsumers;
    const int chunk = thread % kChunks;
    const std::uint32_t from =
        shared + static_cast<std::uint32_t>(Plan::kByteStage + bytes.place * Plan::kByteStageBytes);
    const std::uint32_t scales = from + static_cast<std::uint32_t>(kForwardKeys * Plan::kWidth);
    const SharedRows<64> to{shared +
                            static_cast<std::uint32_t>(Plan::stage_at(wide.place) + chunk / 8 * Plan::kKeyTile)};
    barrier_wait(bytes_barriers.ready(bytes.place), bytes.parity);
    barrier_wait(barriers.free(wide.place), wide.parity ^ 1);
    constexpr int kAhead = 8;  // rows whose bytes are loaded before the first is widened
    const int own = thread / kChunks;
    for (int first = own; first < kForwardKeys; first += kAhead * kStep) {
      uint2 eight[kAhead];
      std::uint32_t scale[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int row = first + i * kStep;
        const int page = row >> block_shift;
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];\n"
                     : "=r"(eight[i].x), "=r"(eight[i].y)
                     : "r"(from + static_cast<std::uint32_t>(row * Plan::kWidth + chunk * 8)));
        asm volatile("ld.shared.u8 %0, [%1];\n"
                     : "=r"(scale[i])
                     : "r"(scales + static_cast<std::uint32_t>(page * 128 + row - (page << block_shift))));
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        store_shared16(to.at(first + i * kStep, chunk % 8),
                       widened_eight(eight[i], head_factor(static_cast<std::uint8_t>(scale[i]))));
      }
    }
    fence_async_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      barrier_arrive(bytes_barriers.free(bytes.place));
      barrier_arrive(barriers.ready(wide.place));
    }
    bytes.next();
    wide.next();
  }
};

}  // namespace hone
