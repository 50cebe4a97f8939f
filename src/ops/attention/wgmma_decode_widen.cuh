// Tiles of FP8 pages in shared memory as rows of A of wgmma, which are widened to bf16 in registers.
//
// A tile has 128 rows of kWidth bytes, whose chunks of 16 bytes are swizzled by the copies, and a scale for each row.
// ldmatrix takes two bytes for one number of its matrices of 8 x 8, so that one matrix is eight keys by 16 columns:
//
//   keys    as they are: the lane that has row lane / 4 of A gets the columns 4 q .. 4 q + 3 of 16, where q = lane % 4.
//           They are its columns 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of A; the queries are brought to the same order
//           (order_queries()). A product adds its 16 terms at once, so that their order changes no bit.
//   values  transposed: a lane gets the keys 2 q and 2 q + 1 in the columns 2 (lane / 4) and 2 (lane / 4) + 1. The even
//           column becomes row lane / 4 of A, the odd one row lane / 4 + 8.
#pragma once

#include "backend/cuda/mma.cuh"
#include "ops/attention/fp8_heads.cuh"
#include "ops/attention/wgmma_schedule.cuh"

namespace hone {

// The operands A of four products of a warpgroup: steps of 16 along the sum.
using WidenedRows = std::uint32_t[4][4];

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

  // Of the keys 64 m .. 64 m + 63 the scales of the lane's rows and the bytes of the warp's 16: two steps of 16 columns
  // in four words.
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
  // Of the columns 64 part .. 64 part + 63 of the values, in the keys 64 half .. 64 half + 63, the bytes of the warp's
  // 16: two steps of 16 keys in four words.
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

}  // namespace hone
