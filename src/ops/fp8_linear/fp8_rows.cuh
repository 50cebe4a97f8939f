// The kernel of y [m, n] = x [m, k] W[n, k]^T + bias [n] for W in e4m3 with scales and more rows of x than
// fp8_stream.cuh takes, at most 64 at a time, limited by reading the bytes of W once.
//
// As in few_rows_cuda.cu, whose bits the results have: one block for each SM takes tiles of rows of W in turn, two
// threads fill a ring of stages by bulk copies, and an element is one chain of wgmma over k in ascending order. Here
// the operand of 64 rows of wgmma is W in registers: each warp converts its rows from the bytes in shared memory, so
// that W is neither written nor read as bf16 anywhere.
//
// A block of 128 columns is one column of scales and 8 links (wgmma of 16 columns) of the chain. Its products run while
// the same warps convert the next block into other registers; a stage has one or two blocks:
//
//    tensor cores         products of block 0       products of block 1       products of block 2
//    warps          convert 0 | convert 1           convert 2                 convert 3
//
// The code from one wgmma to the next must have no branch that ptxas cannot follow, or it waits after each of them.
// Therefore what a block converts is decided once for all of its tiles: by one multiplication in bf16 of two weights if
// all scales are powers of two, otherwise in f32.
//
// Rows: a warpgroup has up to 64 rows of a tile, in groups of 8. Of the 16 rows of wgmma that a warp holds, it takes
// the first 8 for its first group and the other 8 for its second one, and all four warps have a group before one has
// two. A tile of 32 rows (4096 rows of W on 132 SMs) thus gives each warp 8 rows to convert, not 16 rows to two of
// them. What wgmma computes for rows without a group is not written.
//
//    tile of 40 rows:                   warp 0   warp 1   warp 2   warp 3
//      rows 0 to 7 of the warp          0 to 7   8 to 15  16 to 23 24 to 31
//      rows 8 to 15                     32 to 39   -        -        -
//
// Bytes: they are in the order in which threads need them (backend/fp8_fragments.h), so that 16 bytes are four links of
// a row, and some shifts and masks make two of them a register of A (fp8_bits.cuh).
#pragma once

#include "ops/fp8_linear/fp8_rows_ring.cuh"

namespace hone {

inline constexpr int kMostTokens = 64;    // of a tile
inline constexpr int kMostTileRows = 64;  // those of wgmma
inline constexpr int kLinks = 8;          // of 16 columns, in a stage

// Forms of the kernel. kHalves is 1 if the warps have one group of rows each. kBlocks, 1 or 2, are those of a stage.
template <int kForTokens, int kOfHalves, int kOfWarpgroups, int kOfBlocks>
struct Fp8Form {
  static constexpr int kTokens = kForTokens;
  static constexpr int kHalves = kOfHalves;
  static constexpr int kWarpgroups = kOfWarpgroups;
  static constexpr int kBlocks = kOfBlocks;
  static constexpr int kCount = kTokens / 8;  // groups of 8 columns of the accumulators
  static constexpr int kComputing = kWarpgroups * kWarpgroupThreads;
  static constexpr int kThreads = kComputing + kCopyingThreads;
  static constexpr int kTokenBytes = kTokens * kFp8RowBytes;  // of a part of x
};

template <class Form>
class Fp8Rows {
 public:
  static constexpr int kCount = Form::kCount;
  static constexpr int kHalves = Form::kHalves;
  static constexpr int kBlocks = Form::kBlocks;
  using Fragments = std::uint32_t[kLinks][4];
  using Words = Fp8Words[kHalves][kLinks / 4];
  using Factors = std::uint32_t[kBlocks][kHalves];

  __device__ Fp8Rows(const Fp8RowsArgs& args, const WeightRing& ring)
      : args_(args),
        ring_(ring),
        warp_(static_cast<int>(threadIdx.x) / 32 % 4),
        lane_(static_cast<int>(threadIdx.x) % 32),
        first_row_(static_cast<int>(threadIdx.x) / kWarpgroupThreads * (args.tile_rows / Form::kWarpgroups)) {}

  __device__ void run() {
    if (has_only_powers_of_two(args_, Form::kComputing)) {
      run_tiles<true>();
    } else {
      run_tiles<false>();
    }
  }

 private:
  template <bool kExact>
  __device__ void run_tiles() {
    Fragments a[2];
    Fp8Factors<kHalves, kExact> factors(args_, [&](int half) { return row_of(half); });
    Factors factor;
    factors.take(factor);
    for (int tile = static_cast<int>(blockIdx.x); tile < args_.tiles; tile += static_cast<int>(gridDim.x)) {
      const int row = tile / args_.token_tiles * args_.tile_rows;
      float c[kCount][4];
      multiply_tile<kExact>(c, a, factors, factor);
      write(c, row, tile % args_.token_tiles * Form::kTokens);
    }
  }

  // True if a half of the warp's rows has a group, and its first row in the tile; if not, any row.
  [[nodiscard]] __device__ bool used(int half) const {
    return (warp_ + half * 4) * 8 < args_.tile_rows / Form::kWarpgroups;
  }
  [[nodiscard]] __device__ int row_of(int half) const { return first_row_ + (used(half) ? (warp_ + half * 4) * 8 : 0); }

  template <bool kExact>
  __device__ void multiply_tile(float (&c)[kCount][4], Fragments (&a)[2], Fp8Factors<kHalves, kExact>& factors,
                                Factors& factor) {
    Words words;
    std::uint32_t before = 0;  // barrier of the stage whose products end next
    barrier_wait(ring_.weight_full(), ring_.parity);
    load(words, ring_.at(), 0);
    convert<kExact>(a[0], words, factor[0]);
    int step = 0;
    for (;;) {
      run_block<kExact, 0>(c, a[0], a[1], words, before, factors, factor, step);
      if (++step == args_.steps) break;
      run_block<kExact, kBlocks - 1>(c, a[1], a[0], words, before, factors, factor, step);
      if (++step == args_.steps) break;
    }
    warpgroup_wait<0>();
    settle(c);
    if (lane_ == 0) barrier_arrive(before);
  }

  // Starts the products of block kBlock of a stage with the fragments `a` and converts the next block to `next` while
  // they run. The first block of the last stage of a tile is converted once more after it, so that there is no branch.
  template <bool kExact, int kBlock>
  __device__ void run_block(float (&c)[kCount][4], Fragments& a, Fragments& next, Words& words, std::uint32_t& before,
                            Fp8Factors<kHalves, kExact>& factors, Factors& factor, int step) {
    constexpr bool kFirst = kBlock == 0;
    constexpr bool kLast = kBlock + 1 == kBlocks;
    const WeightRing now = ring_;
    Factors next_factor;
    if constexpr (kLast) {
      ring_.next();
      factors.take(next_factor);
      const bool ends = step + 1 == args_.steps;
      barrier_wait(ends ? now.weight_full() : ring_.weight_full(), ends ? now.parity : ring_.parity);
      load(words, ends ? now.at() : ring_.at(), 0);
    } else {
      load(words, now.at(), kBlock + 1);
    }
    if constexpr (kFirst) barrier_wait(now.tokens_full(), now.parity);
#pragma unroll
    for (int link = 0; link < kLinks; ++link) {
      if constexpr (kHalves == 1) any_rows(a[link]);
      asm volatile("" : "+r"(a[link][0]), "+r"(a[link][1]), "+r"(a[link][2]), "+r"(a[link][3])::"memory");
    }
    warpgroup_fence();
    multiply(c, a, now.at() + kBlocks * args_.tile_rows * kFp8RowBytes + kBlock * 2 * Form::kTokenBytes, step > 0);
    warpgroup_commit();
    warpgroup_wait<1>();
    if constexpr (kFirst) {
      if (step > 0 && lane_ == 0) barrier_arrive(before);
      before = now.empty();
    }
    convert<kExact>(next, words, kLast ? next_factor[0] : factor[(kBlock + 1) % kBlocks]);
    if constexpr (kLast) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half) factor[block][half] = next_factor[block][half];
      }
    }
  }

  // Loads the thread's words of a block of a stage.
  __device__ void load(Words& words, std::uint32_t stage, int block) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const std::uint32_t unit = stage + row_of(half) * kBlocks * kFp8BlockColumns + block * kFp8UnitBytes;
#pragma unroll
      for (int part = 0; part < kLinks / 4; ++part) load_words(words[half][part], fp8_words_at(unit, part, lane_));
    }
  }

  template <bool kExact>
  __device__ void convert(Fragments& a, const Words& words, const std::uint32_t (&factor)[kHalves]) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int link = 0; link < kLinks; ++link) {
        convert_word<kExact>(a[link][half], a[link][half + 2], words[half][link / 4][link % 4], factor[half]);
      }
    }
  }

  // Starts the links of a block, whose rows of x are at `tokens`.
  __device__ void multiply(float (&c)[kCount][4], const Fragments& a, std::uint32_t tokens, bool keep) const {
    const std::uint64_t high = warpgroup_operand(0, 0);  // of the descriptors; the rest is in their lower 32 bits
    const std::uint32_t first = (tokens & 0x3FFFF) / 16;
#pragma unroll
    for (int link = 0; link < kLinks; ++link) {
      const int ahead = link / 4 * (Form::kTokenBytes / 16) + 2 * (link % 4);
      warpgroup_multiply<Major::kK>(c, a[link], high | (first + static_cast<std::uint32_t>(ahead)),
                                    keep || link > 0 ? 1 : 0);
    }
  }

  // A thread has one row of each group and two tokens in each 8.
  __device__ void write(const float (&c)[kCount][4], int tile_row, int first_token) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int row = tile_row + row_of(half) + lane_ / 4;
      if (!used(half) || row >= args_.n) continue;
      const bool biased = args_.bias != nullptr;
      const float bias = biased ? __bfloat162float(args_.bias[row]) : 0.0f;
#pragma unroll
      for (int count = 0; count < kCount; ++count) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = first_token + count * 8 + lane_ % 4 * 2 + i;
          if (token >= args_.m) continue;
          const float sum = c[count][half * 2 + i];
          args_.y[token * args_.ldy + row] = __float2bfloat16_rn(biased ? sum + bias : sum);
        }
      }
    }
  }

  const Fp8RowsArgs& args_;
  WeightRing ring_;
  int warp_;  // of the warpgroup
  int lane_;
  int first_row_;  // of the warpgroup, in the tile
};

template <class Form>
__global__ void HONE_WGMMA_BOUNDS(Form::kThreads, 1)
    fp8_rows(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
             const __grid_constant__ Fp8RowsArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char fp8_rows_shared[];
  __shared__ alignas(8) std::uint64_t barriers[3 * kMostStages];
  const WeightRing ring{.base = (shared_address(fp8_rows_shared) + 1023) / 1024 * 1024,
                        .barriers = shared_address(barriers),
                        .stage_bytes = Form::kBlocks * (args.tile_rows * kFp8RowBytes + 2 * Form::kTokenBytes),
                        .stages = args.stages};
  allow_dependent_launch();
  make_barriers(ring, Form::kComputing / 32);
  const int thread = static_cast<int>(threadIdx.x) - Form::kComputing;
  if (thread < 0) {
    if (!args.constant_weight) wait_for_prior_kernels();
    Fp8Rows<Form>(args, ring).run();
  } else if (thread == 0) {
    if (!args.constant_weight) wait_for_prior_kernels();
    copy_fp8_weights(ring, weight, args);
  } else if (thread == kCopyingThreads / 2) {
    wait_for_prior_kernels();
    copy_fp8_tokens(ring, x, args, Form::kTokenBytes);
  }
#endif
}

}  // namespace hone
