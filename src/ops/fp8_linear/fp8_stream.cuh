// The kernel of y [m, n] = x [m, k] W[n, k]^T + bias [n] for W in e4m3 with scales and at most 16 rows of x (decoding
// of few streams), limited by reading the bytes of W once.
//
// It reads as fp8_rows.cuh does, from the same ring, and has the same bits: an element is one chain over k in links of
// 16 columns in ascending order. The links are mma.m16n8k16 of single warps instead of wgmma of four. With so few
// columns a warp waits for the link before (24 cycles) longer than its instructions take, and unlike a warpgroup it
// needs no fences, so that conversions, loads and waits for the next columns are done meanwhile:
//
//    tensor cores    link 0     link 1     link 2     link 3    | link 0 of the next half ...
//    warp            convert words of the next half, of link 0  1  2  3; load its x
//
// Rows: a warp has one unit of 8 rows of W (backend/fp8_fragments.h), so that a tile of 32 rows (4096 rows of W on 132
// SMs) gives work to all four schedulers, or two units, which are the 16 rows of a link. The other 8 rows of a single
// unit are whatever the registers hold. A tile thus has 2 to 8 warps with a unit, or 5 to 16 with two.
//
// Steps of a block b of 128 columns, in halves of 64 columns, which are 16 bytes of a unit for each thread:
//   1. if b is the last one of a stage, wait for W of the next stage, maybe of the next tile;
//   2. products of the first half of b; meanwhile load x of its second half and words of the first half of the block c
//      that follows, and convert the words of the second half of b, which were loaded before;
//   3. if b is the last one of a stage, all of that has been read: arrive on empty, then wait for x of the next one;
//   4. products of the second half of b; meanwhile load x of the first half of c and words of its second half, and
//      convert the words of its first half.
// Waits and branches of a single warp cost as much as some links each. Small tiles therefore have stages of several
// blocks, whose code has no branch.
#pragma once

#include "ops/fp8_linear/fp8_rows_ring.cuh"

namespace hone {

inline constexpr int kHalfLinks = 4;  // of 16 columns, in half a block

// Forms of the kernel: tokens of a tile (8 or 16), units of a warp (1 or 2), the most warps, and blocks of a stage (1,
// 2 or 4), a divisor of the blocks of a tile.
template <int kForTokens, int kOfUnits, int kOfWarps, int kOfBlocks>
struct Fp8StreamForm {
  static constexpr int kTokens = kForTokens;
  static constexpr int kUnits = kOfUnits;
  static constexpr int kBlocks = kOfBlocks;
  static constexpr int kGroups = kTokens / 8;  // of 8 tokens, the columns of a link
  static constexpr int kMostThreads = kOfWarps * 32 + kCopyingThreads;
  static constexpr int kTokenBytes = kTokens * kFp8RowBytes;  // of a part of x, 64 columns
};

template <class Form>
class Fp8Stream {
 public:
  static constexpr int kUnits = Form::kUnits;
  static constexpr int kBlocks = Form::kBlocks;
  static constexpr int kGroups = Form::kGroups;
  // Operands of the links of half a block.
  struct Half {
    std::uint32_t w[kHalfLinks][kUnits][2];
    std::uint32_t x[kHalfLinks][kGroups][2];
  };
  using Words = Fp8Words[kUnits];

  __device__ Fp8Stream(const Fp8RowsArgs& args, const WeightRing& ring, int computing)
      : args_(args),
        ring_(ring),
        computing_(computing),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_row_(static_cast<int>(threadIdx.x) / 32 * kUnits * kFp8UnitRows),
        weight_offset_(fp8_words_at(static_cast<std::uint32_t>(warp_row_ * kBlocks * kFp8BlockColumns), 0, lane_)),
        token_offset_(static_cast<std::uint32_t>((args.tile_rows * kBlocks + lane_ % 8) * kFp8RowBytes) +
                      static_cast<std::uint32_t>((lane_ / 8 ^ lane_ % 8) * 16)) {}

  __device__ void run() {
    if (has_only_powers_of_two(args_, computing_)) {
      run_tiles<true>();
    } else {
      run_tiles<false>();
    }
  }

 private:
  template <bool kExact>
  __device__ void run_tiles() {
    Half first;
    Half second;
    Words words;
    float c[kGroups][4] = {};
    Fp8Factors<kUnits, kExact> factors(args_, [&](int unit) { return warp_row_ + unit * kFp8UnitRows; });
    std::uint32_t factor[kBlocks][kUnits];
    factors.take(factor);
    barrier_wait(ring_.weight_full(), ring_.parity);
    load_weights(words, ring_.at() + weight_offset_);
    convert<kExact>(first, words, factor[0]);
    load_weights(words, ring_.at() + weight_offset_ + kFp8UnitBytes / 2);
    barrier_wait(ring_.tokens_full(), ring_.parity);
    load_tokens(first, ring_.at() + token_offset_);
    const int stages = args_.steps / kBlocks;
    int tile = static_cast<int>(blockIdx.x);
    int stage = 0;
    for (;;) {
      const bool tile_ends = ++stage == stages;
      const bool ends = tile_ends && tile + static_cast<int>(gridDim.x) >= args_.tiles;
      run_stage<kExact>(c, first, second, words, factors, factor, ends);
      if (!tile_ends) continue;
      write(c, tile);
      if (ends) return;
      tile += static_cast<int>(gridDim.x);
      stage = 0;
#pragma unroll
      for (auto& group : c) {
#pragma unroll
        for (float& sum : group) sum = 0.0f;
      }
    }
  }

  // The products of a stage. Before and after it, `first` has the operands of a stage's first half block, `words` those
  // of the second one and `factor` its factors. If `ends`, no stage follows, and this one is read once more for
  // nothing.
  template <bool kExact>
  __device__ void run_stage(float (&c)[kGroups][4], Half& first, Half& second, Words& words,
                            Fp8Factors<kUnits, kExact>& factors, std::uint32_t (&factor)[kBlocks][kUnits], bool ends) {
    WeightRing next = ring_;
    if (!ends) next.next();
    const std::uint32_t weights = ring_.at() + weight_offset_;
    const std::uint32_t tokens = ring_.at() + token_offset_;
    std::uint32_t next_factor[kBlocks][kUnits];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const bool last = block + 1 == kBlocks;
      if (last) {
        factors.take(next_factor);
        if (!ends) barrier_wait(next.weight_full(), next.parity);
      }
      const std::uint32_t weights_after =
          last ? next.at() + weight_offset_ : weights + static_cast<std::uint32_t>((block + 1) * kFp8UnitBytes);
      const std::uint32_t tokens_after =
          last ? next.at() + token_offset_ : tokens + static_cast<std::uint32_t>((block + 1) * 2 * Form::kTokenBytes);
      Words words_after;
      load_tokens(second, tokens + static_cast<std::uint32_t>((2 * block + 1) * Form::kTokenBytes));
      load_weights(words_after, weights_after);
      multiply<kExact>(c, first, second, words, factor[block]);
      if (last) {
        __syncwarp();
        if (lane_ == 0) barrier_arrive(ring_.empty());
        if (!ends) barrier_wait(next.tokens_full(), next.parity);
      }
      load_tokens(first, tokens_after);
      load_weights(words, weights_after + kFp8UnitBytes / 2);
      multiply<kExact>(c, second, first, words_after, last ? next_factor[0] : factor[(block + 1) % kBlocks]);
    }
    ring_ = next;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) factor[block][unit] = next_factor[block][unit];
    }
  }

  // Load the thread's words, and its operands of x, 32 columns of 8 tokens at a time, of half a block. Rows of x are
  // swizzled by 128 bytes.
  __device__ void load_weights(Words& words, std::uint32_t at) const {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      load_words(words[unit], at + static_cast<std::uint32_t>(unit * kBlocks * kFp8UnitBytes));
    }
  }
  __device__ void load_tokens(Half& half, std::uint32_t at) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int pair = 0; pair < kHalfLinks / 2; ++pair) {
        std::uint32_t r[4];
        load_matrices(
            r, (at ^ static_cast<std::uint32_t>(pair * 64)) + static_cast<std::uint32_t>(group * 8 * kFp8RowBytes));
        half.x[2 * pair][group][0] = r[0];
        half.x[2 * pair][group][1] = r[1];
        half.x[2 * pair + 1][group][0] = r[2];
        half.x[2 * pair + 1][group][1] = r[3];
      }
    }
  }

  // The fragment A of a link: the first unit is rows 0 to 7 of its 16, the second one the others.
  static __device__ void fragment_of(std::uint32_t (&a)[4], const std::uint32_t (&w)[kUnits][2]) {
    a[0] = w[0][0];
    a[2] = w[0][1];
    if constexpr (kUnits == 2) {
      a[1] = w[1][0];
      a[3] = w[1][1];
    } else {
      any_rows(a);
    }
  }

  // The products of a half, and meanwhile the conversion of the next one, which has these words and factors.
  template <bool kExact>
  __device__ void multiply(float (&c)[kGroups][4], const Half& half, Half& next, const Words& words,
                           const std::uint32_t (&factor)[kUnits]) const {
#pragma unroll
    for (int link = 0; link < kHalfLinks; ++link) {
      std::uint32_t a[4];
      fragment_of(a, half.w[link]);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        multiply_add(c[group], a, half.x[link][group][0], half.x[link][group][1]);
      }
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        convert_word<kExact>(next.w[link][unit][0], next.w[link][unit][1], words[unit][link], factor[unit]);
      }
    }
  }
  template <bool kExact>
  __device__ void convert(Half& half, const Words& words, const std::uint32_t (&factor)[kUnits]) const {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
      for (int link = 0; link < kHalfLinks; ++link) {
        convert_word<kExact>(half.w[link][unit][0], half.w[link][unit][1], words[unit][link], factor[unit]);
      }
    }
  }

  // A thread has one row of each unit and two tokens in each 8.
  __device__ void write(const float (&c)[kGroups][4], int tile) const {
    const int first_row = tile / args_.token_tiles * args_.tile_rows + warp_row_ + lane_ / 4;
    const int first_token = tile % args_.token_tiles * Form::kTokens + lane_ % 4 * 2;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const int row = first_row + unit * kFp8UnitRows;
      if (row >= args_.n) continue;
      const bool biased = args_.bias != nullptr;
      const float bias = biased ? __bfloat162float(args_.bias[row]) : 0.0f;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = first_token + group * 8 + i;
          if (token >= args_.m) continue;
          const float sum = c[group][unit * 2 + i];
          args_.y[token * args_.ldy + row] = __float2bfloat16_rn(biased ? sum + bias : sum);
        }
      }
    }
  }

  const Fp8RowsArgs& args_;
  WeightRing ring_;
  int computing_;  // threads
  int lane_;
  int warp_row_;                 // of the tile
  std::uint32_t weight_offset_;  // of the thread's first word in a stage
  std::uint32_t
      token_offset_;  // of the row of x whose address it gives to ldmatrix; part of 64 columns, chunk lane / 8
};

template <class Form>
__global__ void HONE_WGMMA_BOUNDS(Form::kMostThreads, 1)
    fp8_stream(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
               const __grid_constant__ Fp8RowsArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char fp8_stream_shared[];
  __shared__ alignas(8) std::uint64_t barriers[3 * kMostStages];
  const int computing = static_cast<int>(blockDim.x) - kCopyingThreads;
  const WeightRing ring{.base = (shared_address(fp8_stream_shared) + 1023) / 1024 * 1024,
                        .barriers = shared_address(barriers),
                        .stage_bytes = Form::kBlocks * (args.tile_rows * kFp8RowBytes + 2 * Form::kTokenBytes),
                        .stages = args.stages};
  allow_dependent_launch();
  make_barriers(ring, computing / 32);
  const int thread = static_cast<int>(threadIdx.x) - computing;
  if (thread < 0) {
    if (!args.constant_weight) wait_for_prior_kernels();
    Fp8Stream<Form>(args, ring, computing).run();
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
