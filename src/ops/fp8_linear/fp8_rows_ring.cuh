// The stages of fp8_rows.cuh in the ring of few_rows_ring.cuh, and the threads that copy to them. A stage is
// `tile_rows` rows of W and then two parts of x.
#pragma once

#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"
#include "ops/linear/few_rows_ring.cuh"

namespace hone {

inline constexpr int kFp8StageColumns = 128;  // of k: a row of W, and two parts of 64 columns of x
inline constexpr int kFp8RowBytes = 128;      // of a row of W or of a row of a part of x

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

// Copies the tiles of W of this block. At most args.under_way stages are under way at a time, so that what earlier
// kernels load meanwhile does not queue behind them.
__device__ inline void copy_fp8_weights(WeightRing ring, const CUtensorMap& weight, const Fp8RowsArgs& args) {
  WeightRing arriving = ring;
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
__device__ inline void copy_fp8_tokens(WeightRing ring, const CUtensorMap& x, const Fp8RowsArgs& args, int bytes) {
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
