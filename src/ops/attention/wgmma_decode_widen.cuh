// Tiles of FP8 pages in shared memory as rows of A of wgmma, which are widened to bf16 in registers.
//
// A tile has 128 rows of kWidth bytes, whose chunks of 16 bytes are swizzled by the copies, and a scale for each row.
// ldmatrix takes two bytes for one number of its matrices of 8 x 8, so that one matrix is eight keys by 16 columns:
//
//   keys    as they are: the lane that has row lane / 4 of A gets the columns 4 q .. 4 q + 3 of 16, where q = lane % 4.
//           They are its columns 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of A; the queries are copied in the same order
//           (DecodeQueries). A product adds its 16 terms together, so that their order changes no bit.
//   values  transposed: a lane gets the keys 2 q and 2 q + 1 in the columns 2 (lane / 4) and 2 (lane / 4) + 1. The even
//           column becomes row lane / 4 of A, the odd one row lane / 4 + 8.
#pragma once

#include "backend/cuda/mma.cuh"
#include "ops/attention/fp8_heads.cuh"
#include "ops/attention/wgmma_decode_compute.cuh"

namespace hone {

// The operands A of four products of a warpgroup: steps of 16 along the sum.
using WidenedRows = std::uint32_t[4][4];
// Keeps the compiler from moving their conversion below a following wgmma.
__device__ inline void settle(WidenedRows& a) {
#pragma unroll
  for (int step = 0; step < 4; ++step)
    asm volatile("" : "+r"(a[step][0]), "+r"(a[step][1]), "+r"(a[step][2]), "+r"(a[step][3])::"memory");
}

template <class Plan>
struct Fp8Tile {
  std::uint32_t address;
  std::uint32_t scales;  // their address

  static constexpr int kWidth = Plan::kWidth;

  [[nodiscard]] __device__ static int warp() { return static_cast<int>(threadIdx.x) % Plan::kGroup / 32; }
  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // The address of 16 bytes, as byte_boxes() swizzles them.
  [[nodiscard]] __device__ std::uint32_t at(int row, int chunk) const {
    const int place = kWidth == 128 ? chunk ^ (row & 7) : chunk ^ (row >> 1 & 3);
    return address + static_cast<std::uint32_t>(row * kWidth + place * 16);
  }
  [[nodiscard]] __device__ float key_scale(int row) const {
    std::uint32_t scale;
    asm volatile("ld.shared.u8 %0, [%1];\n" : "=r"(scale) : "r"(scales + static_cast<std::uint32_t>(row)));
    return __uint_as_float(scale << 23);
  }

  // Loads from the keys 64 m .. 64 m + 63 the scales of the lane's rows and the bytes of the warp's 16: two steps of 16
  // columns in four words.
  using KeyWords = std::uint32_t[kWidth / 32][4];
  __device__ void load_keys(KeyWords& words, float (&factors)[2], int m) const {
    const int first = m * 64 + warp() * 16;
    factors[0] = key_scale(first + lane() / 4);
    factors[1] = key_scale(first + lane() / 4 + 8);
#pragma unroll
    for (int i = 0; i < kWidth / 32; ++i) load_matrices(words[i], at(first + (lane() & 15), 2 * i + (lane() >> 4)));
  }
  // Steps 4 part .. 4 part + 3 of them, without the scales.
  __device__ static void widen_keys(WidenedRows& a, const KeyWords& words, int part) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const std::uint32_t word = words[part * 2 + step / 2][step % 2 * 2 + row];
        a[step][row] = number_pair(word, kFirstBytes);
        a[step][row + 2] = number_pair(word, kLastBytes);
      }
    }
  }

  // The factors of the lane's keys 64 half + 8 i + 2 q and the next. Those of keys from `count` on are 0 if kLast,
  // because their rows hold whatever bytes were there.
  template <bool kLast>
  __device__ void value_factors(std::uint32_t (&factors)[kForwardKeys / 16], int half, int count) const {
#pragma unroll
    for (int i = 0; i < kForwardKeys / 16; ++i) {
      const int key = 64 * half + 8 * i + lane() % 4 * 2;
      std::uint32_t pair;
      asm volatile("ld.shared.u16 %0, [%1];\n" : "=r"(pair) : "r"(scales + static_cast<std::uint32_t>(key)));
      factors[i] = permuted_bytes(pair, 0, 0x4140u) << 7;
      if (kLast && key >= count) factors[i] = 0;
      if (kLast && key + 1 >= count) factors[i] &= 0xFFFFu;
    }
  }
  // Loads from the columns 64 part .. 64 part + 63 of the values, in the keys 64 half .. 64 half + 63, the bytes of the
  // warp's 16: two steps of 16 keys in four words.
  using ValueWords = std::uint32_t[kForwardKeys / 64][4];
  __device__ void load_values(ValueWords& words, int part, int half) const {
#pragma unroll
    for (int i = 0; i < kForwardKeys / 64; ++i)
      load_matrices_transposed(words[i], at(64 * half + 32 * i + lane(), part * 4 + warp()));
  }
  __device__ static void widen_values(WidenedRows& a, const ValueWords& words,
                                      const std::uint32_t (&factors)[kForwardKeys / 16]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int of_keys = 0; of_keys < 2; ++of_keys) {
        const std::uint32_t word = words[step / 2][step % 2 * 2 + of_keys];
        const std::uint32_t factor = factors[step * 2 + of_keys];
        a[step][of_keys * 2] = widened_pair(word, kEvenBytes, factor);
        a[step][of_keys * 2 + 1] = widened_pair(word, kOddBytes, factor);
      }
    }
  }
};

// The two warpgroups that compute with FP8 pages. One has the scores and turns them into weights, the other one adds
// what these weigh, a tile or two behind. Weights, decays and maxima pass through two buffers.
template <class Plan>
struct DecodeFp8Compute : DecodeCompute<Plan> {
  static_assert(Plan::kStages >= 4);
  using Base = DecodeCompute<Plan>;
  using Base::add_weights;
  using Base::barriers;
  using Base::buffer;
  using Base::buffers;
  using Base::bytes;
  using Base::clear_outputs;
  using Base::column;
  using Base::decay_outputs;
  using Base::decays;
  using Base::floats;
  using Base::greatest;
  using Base::kParts;
  using Base::kWidth;
  using Base::lane;
  using Base::meet;
  using Base::next_stage;
  using Base::o;
  using Base::online_softmax_step;
  using Base::reduce_sums;
  using Base::release;
  using Base::ring;
  using Base::rounded;
  using Base::s;
  using Base::shared;
  using Base::stage;
  using Base::thread;

  __device__ void free_stage(int place) const {
    __syncwarp();
    release(place);
  }
  __device__ void free_buffer() {
    __syncwarp();
    if (lane() == 0) barrier_arrive(barriers.read(buffers.place));
    buffers.next();
  }
  // Rows of A are widened four steps of 16 at a time, while the products of the four before run. The bytes of a stage
  // are free as soon as they have been loaded.
  using Widened = WidenedRows[2];
  __device__ void multiply_widened(float (&c)[1][4], WidenedRows& a, std::uint64_t b, bool keep) {
    settle(a);
    warpgroup_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) warpgroup_multiply<Major::kK>(c, a[step], b + step * 2, keep || step > 0);
    warpgroup_commit();
    warpgroup_wait<1>();
  }
  // Computes the scores of the keys in the next stage. Their scales are powers of two, which multiply the sums as they
  // would multiply each term, as long as no unscaled sum is beyond the range of f32.
  __device__ void scores_of_bytes() {
    const int place = next_stage();
    const Fp8Tile<Plan> tile{stage(place), shared + static_cast<std::uint32_t>(Plan::scales_at(place))};
    const std::uint64_t q = warpgroup_operand(shared + Plan::kQuery, 16);
    Widened a;
    float scales[2][2];
    typename Fp8Tile<Plan>::KeyWords words[2];
#pragma unroll
    for (int m = 0; m < 2; ++m) tile.load_keys(words[m], scales[m], m);
    free_stage(place);
    settle(s[0]);
    settle(s[1]);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        WidenedRows& rows = a[(m * kParts + part) % 2];
        tile.widen_keys(rows, words[m], part);
        multiply_widened(s[m], rows, q + part * (Plan::kQueryTile / 16), part > 0);
      }
    }
    warpgroup_wait<0>();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      settle(s[m]);
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][0][i] *= scales[m][i / 2];
    }
  }
  // Adds the values in the next stage, with the next weights; kLast: only those of the first `count` keys.
  template <bool kLast>
  __device__ void add_values_of_bytes(int count) {
    const int place = next_stage();
    const Fp8Tile<Plan> tile{stage(place), shared + static_cast<std::uint32_t>(Plan::scales_at(place))};
    // The shuffle tells the compiler that all lanes have one address, so that it keeps descriptors in uniform
    // registers.
    const std::uint32_t of_weights = __shfl_sync(0xFFFFFFFFu, shared + static_cast<std::uint32_t>(rounded()), 0);
    const std::uint64_t p = warpgroup_operand(of_weights, 16);
    Widened a;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t factors[kForwardKeys / 16];
      tile.template value_factors<kLast>(factors, half, count);
      typename Fp8Tile<Plan>::ValueWords words[kParts];
#pragma unroll
      for (int part = 0; part < kParts; ++part) tile.load_values(words[part], part, half);
      if (half == 1) free_stage(place);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        WidenedRows& rows = a[(half * kParts + part) % 2];
        tile.widen_values(rows, words[part], factors);
        if (half == 0 && part == 0) {
          barrier_wait(barriers.filled(buffers.place), buffers.parity);
          decay_outputs(decays()[column()], decays()[column() + 1]);
#pragma unroll
          for (int each = 0; each < kParts; ++each) settle(o[each]);
        }
        multiply_widened(o[part], rows, p + half * (Plan::kQueryTile / 16), true);
      }
    }
    add_weights();
    warpgroup_wait<0>();
#pragma unroll
    for (int part = 0; part < kParts; ++part) settle(o[part]);
  }

  // Compute the `count` tiles of keys of a split, from tile `first` on, as split() does; each passes over the stages of
  // the other. The ring has four stages at least, so that no stage that one of them passes over is two rounds behind.
  __device__ void score_split(int first, int count, bool ends) {
    greatest[0] = greatest[1] = -std::numeric_limits<float>::infinity();
    for (int i = 0; i < count; ++i) {
      scores_of_bytes();
      if (i > 0) ring.next();
      if (ends && i + 1 == count && lane() == 0) barrier_arrive(barriers.q_free());
      online_softmax_step(first + i);
    }
    ring.next();
  }
  __device__ void value_split(int first, int count, int keys) {
    clear_outputs();
    ring.next();
    for (int i = 0; i + 1 < count; ++i) {
      ring.next();
      add_values_of_bytes<false>(kForwardKeys);
      free_buffer();
    }
    add_values_of_bytes<true>(keys - (first + count - 1) * kForwardKeys);
    const float* most = floats(buffer(Plan::kGreatest, Plan::kRows * 4)) + column();
    greatest[0] = most[0];
    greatest[1] = most[1];
    free_buffer();
    reduce_sums();
  }

  // Writes o and lse of the part's rows, of which a thread has two columns that follow each other.
  template <class HeadRow>
  __device__ void write(const TileQueries<__nv_bfloat16>& queries, int rows, const HeadRow& head_row) const {
    const float* totals = floats(Plan::kTotals);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (column() + e >= rows) continue;
      const std::int64_t row = head_row(column() + e);
      const float factor = 1.0f / totals[column() + e];
      if (thread() < 4) queries.lse[row] = __fmaf_rn(greatest[e], queries.scale, logf(totals[column() + e]));
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        *reinterpret_cast<std::uint32_t*>(queries.o + row * kWidth + Base::value_column(part, 0)) =
            packed_bf16(o[part][0][e] * factor, o[part][0][2 + e] * factor);
      }
    }
    meet();
  }
};

}  // namespace hone
