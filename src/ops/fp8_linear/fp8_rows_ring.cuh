// The stages of fp8_rows.cuh and fp8_stream.cuh in the ring of few_rows_ring.cuh, the threads that copy to them, and
// what the computing warps of both kernels share. A stage has `blocks` blocks of 128 columns: first W, units of 8 rows
// by 128 columns in the order of fragments (backend/fp8_fragments.h), those of the same rows one after the other; then
// x, parts of 64 columns of all tokens of the tile.
#pragma once

#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/fp8_fragments.h"
#include "ops/fp8_linear/fp8_bits.cuh"
#include "ops/linear/few_rows_ring.cuh"

namespace hone {

inline constexpr int kFp8BlockColumns =
    static_cast<int>(kFragmentColumns);   // of k: a row of a unit of W, and two parts of 64 columns of x
inline constexpr int kFp8RowBytes = 128;  // of a row of W or of a row of a part of x
inline constexpr int kFp8UnitRows = kFragmentRows;
inline constexpr int kFp8UnitBytes = kFp8UnitRows * kFp8BlockColumns;
inline constexpr int kDecisionBarrier = 1;  // named barrier of the computing warps

struct Fp8RowsArgs {
  __nv_bfloat16* y;           // [m, n], rows ldy apart
  const __nv_bfloat16* bias;  // [n] or null
  const float* scales;        // [ceil(n / scale_rows), steps], rows scale_stride apart
  std::int64_t ldy, scale_stride;
  int m, n, steps;  // k is steps x 128
  int blocks;       // steps of a stage, a divisor of `steps`
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
  const int bytes = args.blocks * args.tile_rows * kFp8RowBytes;
  const int stages = args.steps / args.blocks;
  WeightRing arriving = ring;
  int started = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
    const int unit = tile / args.token_tiles * (args.tile_rows / kFp8UnitRows);
    for (int stage = 0; stage < stages; ++stage, ring.next()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      if (++started > args.under_way) {
        barrier_wait(arriving.weight_full(), arriving.parity);
        arriving.next();
      }
      barrier_expect(ring.weight_full(), bytes);
      bulk_copy_box(ring.at(), weight, 0, stage * args.blocks, unit, ring.weight_full());
    }
  }
}

// Copies x to the stages, again for each tile; `part_bytes` are those of 64 columns.
__device__ inline void copy_fp8_tokens(WeightRing ring, const CUtensorMap& x, const Fp8RowsArgs& args, int part_bytes) {
  const int offset = args.blocks * args.tile_rows * kFp8RowBytes;
  const int stages = args.steps / args.blocks;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
    const int token = tile % args.token_tiles * (part_bytes / kFp8RowBytes);
    for (int stage = 0; stage < stages; ++stage, ring.next()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.tokens_full(), 2 * args.blocks * part_bytes);
      bulk_copy_box(ring.at() + offset, x, 0, token, stage * args.blocks * 2, ring.tokens_full());
    }
  }
}

// The scales of row `row` of W, or of its last row.
[[nodiscard]] __device__ inline const float* scales_of(const Fp8RowsArgs& args, int row) {
  return args.scales + min(row, args.n - 1) / args.scale_rows * args.scale_stride;
}

// Returns true if `value` is for one of the threads of the computing warps, which all call it.
[[nodiscard]] __device__ inline bool any_of_computing(bool value, int threads) {
  int any;
  asm volatile(
      "{\n.reg .pred any;\n.reg .pred own;\nsetp.ne.b32 own, %1, 0;\n"
      "barrier.cta.red.or.pred any, %2, %3, own;\nselp.b32 %0, 1, 0, any;\n}\n"
      : "=r"(any)
      : "r"(static_cast<int>(value)), "n"(kDecisionBarrier), "r"(threads)
      : "memory");
  return any != 0;
}

// Returns true if the scales of all tiles of the block are powers of two. All `threads` computing threads call it.
[[nodiscard]] __device__ inline bool has_only_powers_of_two(const Fp8RowsArgs& args, int threads) {
  bool other = false;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += static_cast<int>(gridDim.x)) {
    const int row = tile / args.token_tiles * args.tile_rows;
    const int first = row / args.scale_rows;
    const int last = min(row + args.tile_rows, args.n) - 1;
    const int count = (last / args.scale_rows - first + 1) * args.steps;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
      const float scale = args.scales[(first + i / args.steps) * args.scale_stride + i % args.steps];
      other = other || !is_power_of_two(scale);
    }
  }
  return !any_of_computing(other, threads);
}

// Four links of a thread: a word of each, from one half of a unit.
using Fp8Words = std::uint32_t[4];
[[nodiscard]] __device__ inline std::uint32_t fp8_words_at(std::uint32_t unit, int half, int lane) {
  return unit + static_cast<std::uint32_t>(half * (kFp8UnitBytes / 2) + lane * 16);
}
__device__ inline void load_words(Fp8Words& words, std::uint32_t address) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

// Converts the word of a link: columns 2 q and 2 q + 1 of it to `first`, eight columns further to `second`, which are
// registers of a fragment A. `factor` is fp8_factor() of the scale.
template <bool kExact>
__device__ inline void convert_word(std::uint32_t& first, std::uint32_t& second, std::uint32_t word,
                                    std::uint32_t factor) {
  if constexpr (kExact) {
    first = scaled_exactly(spread_first(word), factor);
    second = scaled_exactly(spread_second(word), factor);
  } else {
    first = scaled_in_f32(spread_first(word), __uint_as_float(factor));
    second = scaled_in_f32(spread_second(word), __uint_as_float(factor));
  }
}

// The factors of kUnits units of W in a tile, step after step of all tiles of the block of threads. Each thread of a
// warp loads the scale of one of 32 steps, long before it is used: a load from the L2 cache takes longer than a step.
template <int kUnits, bool kExact>
class Fp8Factors {
 public:
  // row_of(unit) is the unit's first row in a tile.
  template <class RowOf>
  __device__ Fp8Factors(const Fp8RowsArgs& args, const RowOf& row_of)
      : args_(args), tile_(static_cast<int>(blockIdx.x)) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) rows_[unit] = row_of(unit);
    load();
  }
  // Writes the factors of the next kSteps steps, 1, 2 or 4, a divisor of those of a tile. The warp calls it together.
  template <int kSteps>
  __device__ void take(std::uint32_t (&factors)[kSteps][kUnits]) {
    if (step_ == args_.steps) step_ = 0;
    if ((step_ & 31) == 0) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) now_[unit] = fp8_factor<kExact>(later_[unit]);
      load();
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        factors[i][unit] = __shfl_sync(0xFFFFFFFFu, now_[unit], (step_ & 31) + i);
      }
    }
    step_ += kSteps;
  }

 private:
  // Loads the scales of the 32 steps, or the rest of a tile, that follow those loaded before. Beyond the last tile they
  // are any scales.
  __device__ void load() {
    const int row = tile_ / args_.token_tiles * args_.tile_rows;
    const int step = min(first_ + static_cast<int>(threadIdx.x) % 32, args_.steps - 1);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) later_[unit] = scales_of(args_, row + rows_[unit])[step];
    first_ += 32;
    if (first_ < args_.steps) return;
    first_ = 0;
    tile_ += static_cast<int>(gridDim.x);
  }

  const Fp8RowsArgs& args_;
  int rows_[kUnits];
  int tile_;       // of the next load()
  int first_ = 0;  // step of it
  int step_ = 0;   // of the next take()
  std::uint32_t now_[kUnits];
  float later_[kUnits];
};

// Leaves rows 8 to 15 of a fragment A to whatever its registers hold, if they have no weights and their sums are not
// written. Setting them to zeros would take up to a quarter of a warp's instructions.
__device__ inline void any_rows(std::uint32_t (&a)[4]) { asm volatile("" : "=r"(a[1]), "=r"(a[3])); }

}  // namespace hone
