// The ring of stages of few_rows_cuda.cu: its place in shared memory, the threads that copy and the chain of products.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/cuda/wgmma.cuh"
#include "ops/cuda_kernel.cuh"

namespace hone {

inline constexpr int kWarpgroupRows = 64;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kPartColumns = 64;
inline constexpr int kRowBytes = kPartColumns * 2;
inline constexpr int kCopyingThreads = 64;       // a warp for W and a warp for x, of which one thread each works
inline constexpr int kSharedBytes = 225 * 1024;  // of the 227 KiB that a block can have
inline constexpr int kMostStages = 64;
inline constexpr int kBytesUnderWay = 44 * 1024;  // of W for an SM, which is enough to read at the memory's rate

// y is the sums of a tile in Out, float or bf16. With SwigluOfSums it is swiglu of the sums by two matrices, gate and
// up, in bf16: W has the n rows of one and then those of the other, and a tile the same rows of both.
struct SwigluOfSums {};
template <class Out>
struct FewRowsOut {
  using Element = Out;
  static constexpr int kMatrices = 1;
};
template <>
struct FewRowsOut<SwigluOfSums> {
  using Element = __nv_bfloat16;
  static constexpr int kMatrices = 2;
};

template <class Out>
struct FewRowsArgs {
  typename FewRowsOut<Out>::Element* y;  // [m, n], rows ldy apart
  const __nv_bfloat16* bias;             // of the rows of W, or null
  std::int64_t ldy;
  int m, n, k;
  int tile_rows;    // of each matrix: columns of y
  int token_tiles;  // tiles of tokens for the same rows of W; they follow each other
  int tiles;        // of columns of y and of tokens
  int stages;
  int under_way;  // stages of W that are copied at a time, at most `stages`
  bool constant_weight;
};

// The place of the stages in shared memory, and the stage that a thread has come to.
struct WeightRing {
  std::uint32_t base;
  std::uint32_t barriers;  // kMostStages for W, for x (both: phases end when a stage is full) and for empty stages
  int stage_bytes;
  int stages;
  int stage = 0;
  int parity = 0;  // of the phase that ends when the stage is full
  [[nodiscard]] __device__ std::uint32_t at() const { return base + stage * stage_bytes; }
  [[nodiscard]] __device__ std::uint32_t weight_full() const { return barriers + 8 * stage; }
  [[nodiscard]] __device__ std::uint32_t tokens_full() const { return barriers + 8 * (kMostStages + stage); }
  [[nodiscard]] __device__ std::uint32_t empty() const { return barriers + 8 * (2 * kMostStages + stage); }
  __device__ void next() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Makes the barriers of a ring for `warps` computing warps; all threads of the block call it.
__device__ inline void make_barriers(const WeightRing& ring, int warps) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < ring.stages; ++s) {
      barrier_init(ring.barriers + 8 * s, 1);
      barrier_init(ring.barriers + 8 * (kMostStages + s), 1);
      barrier_init(ring.barriers + 8 * (2 * kMostStages + s), warps);
    }
    barrier_init_done();
  }
  __syncthreads();
}

// Copies the tiles of W of this block to the first parts of the stages. At most args.under_way stages are under way at
// a time: more do not arrive sooner, but what earlier kernels load meanwhile would queue behind them.
template <int kParts, class Out>
__device__ inline void copy_weights(WeightRing ring, const CUtensorMap& weight, const FewRowsArgs<Out>& args,
                                    int steps) {
  const int bytes = FewRowsOut<Out>::kMatrices * args.tile_rows * kRowBytes;
  WeightRing arriving = ring;
  int started = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
    const int row = tile / args.token_tiles * args.tile_rows;
    for (int step = 0; step < steps; ++step, ring.next()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      if (++started > args.under_way) {
        barrier_wait(arriving.weight_full(), arriving.parity);
        arriving.next();
      }
      barrier_expect(ring.weight_full(), kParts * bytes);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        bulk_copy_box(ring.at() + part * bytes, weight, (step * kParts + part) * kPartColumns, row, 0,
                      ring.weight_full());
      }
    }
  }
}

// Copies the tiles of x, of bytes / kRowBytes tokens each, to the other parts of the stages, again for each tile.
template <int kParts, class Out>
__device__ inline void copy_tokens(WeightRing ring, const CUtensorMap& x, const FewRowsArgs<Out>& args, int steps,
                                   int bytes) {
  const int offset = kParts * FewRowsOut<Out>::kMatrices * args.tile_rows * kRowBytes;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
    const int token = tile % args.token_tiles * (bytes / kRowBytes);
    for (int step = 0; step < steps; ++step, ring.next()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.tokens_full(), kParts * bytes);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        bulk_copy_box(ring.at() + offset + part * bytes, x, (step * kParts + part) * kPartColumns, 0, token,
                      ring.tokens_full());
      }
    }
  }
}

// The work of a copying thread: the first one copies W, before earlier kernels have ended if W is constant, the other
// one x. A stage has kParts parts of W and then as many of x.
template <int kParts, class Out>
__device__ inline void copy_operands(const WeightRing& ring, const CUtensorMap& weight, const CUtensorMap& x,
                                     const FewRowsArgs<Out>& args, int steps, int thread, int token_bytes) {
  if (thread == 0) {
    if (!args.constant_weight) wait_for_prior_kernels();
    copy_weights<kParts>(ring, weight, args, steps);
  } else if (thread == kCopyingThreads / 2) {
    wait_for_prior_kernels();
    copy_tokens<kParts>(ring, x, args, steps, token_bytes);
  }
}

// Accumulates the products of all stages of a tile: c = A B^T, where the first parts of A and B lie `a_offset` and
// `b_offset` bytes from a stage's start and the next parts `a_bytes` and `b_bytes` further. With several c, a part of A
// has the rows of each, `each_bytes` apart.
template <int kParts, int kSums, int kCount>
__device__ inline void multiply_tile(float (&c)[kSums][kCount][4], WeightRing& ring, int steps, int a_offset,
                                     int a_bytes, int each_bytes, int b_offset, int b_bytes) {
  const bool arrives = threadIdx.x % 32 == 0;
  std::uint32_t before = 0;
  for (int step = 0; step < steps; ++step, ring.next()) {
    barrier_wait(ring.weight_full(), ring.parity);
    barrier_wait(ring.tokens_full(), ring.parity);
    warpgroup_fence();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      std::uint64_t a[kSums];
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        a[i] = warpgroup_operand(ring.at() + a_offset + part * a_bytes + i * each_bytes, 0);
      }
      const std::uint64_t b = warpgroup_operand(ring.at() + b_offset + part * b_bytes, 0);
#pragma unroll
      for (int link = 0; link < kPartColumns / 16; ++link) {
        const int keep = step > 0 || part > 0 || link > 0 ? 1 : 0;
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
          warpgroup_multiply<Major::kK, Major::kK>(c[i], a[i] + 2 * link, b + 2 * link, keep);
        }
      }
    }
    warpgroup_commit();
    warpgroup_wait<1>();
    if (before != 0 && arrives) barrier_arrive(before);
    before = ring.empty();
  }
  warpgroup_wait<0>();
#pragma unroll
  for (int i = 0; i < kSums; ++i) settle(c[i]);
  if (arrives) barrier_arrive(before);
}

}  // namespace hone
