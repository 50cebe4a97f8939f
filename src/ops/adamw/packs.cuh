// Packs of a weight, its gradient and its moments: loads and stores, whole or partial at the end of a tensor, and
// conversion in pairs, because two bf16 numbers share a 32-bit word and random bits.
#pragma once

#include <algorithm>

#include "ops/adamw/rounding.h"
#include "ops/cuda_kernel.cuh"

namespace hone {

// The part of a pack that one instruction loads or stores: 8 or 16 bytes.
template <class T, int kSize>
struct PackPart {
  static constexpr int kElements = std::min(kSize, kPackSize<T>);
  static_assert(sizeof(T) * kElements == 8 || sizeof(T) * kElements == 16);
  using Words = std::conditional_t<sizeof(T) * kElements == 16, uint4, uint2>;
};

// Loads a pack, bypassing the L1 cache. Only `count` elements exist; the others become `rest`.
template <class T, int kSize>
__device__ inline void load_pack(Pack<T, kSize>& pack, const T* from, int count, T rest) {
  using Part = PackPart<T, kSize>;
  if (count >= kSize) {
#pragma unroll
    for (int k = 0; k < kSize; k += Part::kElements) {
      const auto words = __ldcg(reinterpret_cast<const typename Part::Words*>(from + k));
      memcpy(&pack.values[k], &words, sizeof(words));
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kSize; ++k) pack[k] = k < count ? from[k] : rest;
}

// Stores the first `count` elements of a pack. Whole packs are stored by an intrinsic, because the compiler may split
// an assignment into one store for each element.
template <class T, int kSize>
__device__ inline void store_pack(T* to, int count, const Pack<T, kSize>& pack) {
  using Part = PackPart<T, kSize>;
  if (count >= kSize) {
#pragma unroll
    for (int k = 0; k < kSize; k += Part::kElements) {
      typename Part::Words words;
      memcpy(&words, &pack.values[k], sizeof(words));
      __stwb(reinterpret_cast<typename Part::Words*>(to + k), words);
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    if (k < count) to[k] = pack[k];
  }
}

// Converts elements k and k + 1 of a pack.
template <class T, int kSize, class A>
__device__ inline void widen_pair(const Pack<T, kSize>& pack, int k, A (&to)[2]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    std::uint32_t word;
    memcpy(&word, &pack.values[k], sizeof(word));
    to[0] = __uint_as_float(word << 16);
    to[1] = __uint_as_float(word & 0xFFFF0000u);
  } else {
    to[0] = pack[k];
    to[1] = pack[k + 1];
  }
}

// Stores two numbers as elements k and k + 1; to bf16 they are rounded as by round_stochastically, with 16 random bits
// each. Without kAny neither may be NaN, which takes a third of the instructions.
template <bool kAny, class T, int kSize, class A>
__device__ inline void round_pair(Pack<T, kSize>& pack, int k, const A (&from)[2], std::uint32_t bits0,
                                  std::uint32_t bits1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const std::uint32_t word =
        kAny ? round_stochastically(from[0], bits0) | std::uint32_t{round_stochastically(from[1], bits1)} << 16
             : __byte_perm(__float_as_uint(from[0]) + bits0, __float_as_uint(from[1]) + bits1, 0x7632);
    memcpy(&pack.values[k], &word, sizeof(word));
  } else {
    pack[k] = from[0];
    pack[k + 1] = from[1];
  }
}

}  // namespace hone
