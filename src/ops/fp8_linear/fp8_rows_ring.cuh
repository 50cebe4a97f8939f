// The ring of stages of fp8_rows_cuda.cu: its place in shared memory, and the threads that copy.
#pragma once

#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"
#include "ops/cuda_kernel.cuh"

namespace hone {

inline constexpr int kFp8WarpgroupThreads = 128;
inline constexpr int kFp8CopyingThreads = 64;  // a warp for W and a warp for x, of which one thread each works
inline constexpr int kFp8StageColumns = 128;   // of k: a row of W, and two parts of 64 columns of x
inline constexpr int kFp8RowBytes = 128;       // of a row of W or of a row of a part of x
inline constexpr int kFp8SharedBytes = 225 * 1024;
inline constexpr int kFp8MostStages = 64;

struct Fp8RowsArgs {
  __nv_bfloat16* y;           // [m, n], rows ldy apart
  const __nv_bfloat16* bias;  // [n] or null
  const float* scales;        // [ceil(n / scale_rows), steps], rows scale_stride apart
  std::int64_t ldy, scale_stride;
  int m, n, steps;  // k is steps x 128
  int scale_rows;
  int tile_rows;
  int token_tiles;  // tiles of tokens for the same rows of W; they follow each other
  int tiles;        // of rows of W and of tokens
  int stages;
  int under_way;  // stages of W that are copied at a time, at most `stages`
  bool constant_weight;
};

// The place of the stages in shared memory, and the stage that a thread has come to. A stage is `tile_rows` rows of W
// and then two parts of x. Its three barriers: W is there and x is there (one arrival, by the thread that copies, and
// the bytes), and the stage is empty (an arrival of each computing warp).
struct Fp8Ring {
  std::uint32_t base;
  std::uint32_t barriers;
  int stage_bytes;
  int stages;
  int stage = 0;
  int parity = 0;  // of the phase that ends when the stage is full
  [[nodiscard]] __device__ std::uint32_t at() const { return base + stage * stage_bytes; }
  [[nodiscard]] __device__ std::uint32_t weight_full() const { return barriers + 8 * stage; }
  [[nodiscard]] __device__ std::uint32_t tokens_full() const { return barriers + 8 * (kFp8MostStages + stage); }
  [[nodiscard]] __device__ std::uint32_t empty() const { return barriers + 8 * (2 * kFp8MostStages + stage); }
  __device__ void next() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Makes the barriers of a ring for `warps` computing warps; all threads of the block call it.
__device__ inline void make_fp8_barriers(const Fp8Ring& ring, int warps) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < ring.stages; ++s) {
      barrier_init(ring.barriers + 8 * s, 1);
      barrier_init(ring.barriers + 8 * (kFp8MostStages + s), 1);
      barrier_init(ring.barriers + 8 * (2 * kFp8MostStages + s), warps);
    }
    barrier_init_done();
  }
  __syncthreads();
}

// Copies the tiles of W of this block. At most args.under_way stages are under way at a time, so that what earlier
// kernels load meanwhile does not queue behind them.
__device__ inline void copy_fp8_weights(Fp8Ring ring, const CUtensorMap& weight, const Fp8RowsArgs& args) {
  Fp8Ring arriving = ring;
  int started = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
    for (int step = 0; step < args.steps; ++step, ring.next()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      if (++started > args.under_way) {
        barrier_wait(arriving.weight_full(), arriving.parity);
        arriving.next();
      }
      barrier_expect(ring.weight_full(), args.tile_rows * kFp8RowBytes);
      bulk_copy_box(ring.at(), weight, step * kFp8StageColumns, 0, tile / args.token_tiles * args.tile_rows,
                    ring.weight_full());
    }
  }
}

// Copies x to the stages, again for each tile; `bytes` are those of a part.
__device__ inline void copy_fp8_tokens(Fp8Ring ring, const CUtensorMap& x, const Fp8RowsArgs& args, int bytes) {
  const int offset = args.tile_rows * kFp8RowBytes;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
    const int token = tile % args.token_tiles * (bytes / kFp8RowBytes);
    for (int step = 0; step < args.steps; ++step, ring.next()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.tokens_full(), 2 * bytes);
      for (int part = 0; part < 2; ++part) {
        bulk_copy_box(ring.at() + offset + part * bytes, x, step * kFp8StageColumns + part * (kFp8StageColumns / 2), 0,
                      token, ring.tokens_full());
      }
    }
  }
}

}  // namespace hone
