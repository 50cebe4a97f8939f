// A row held in the registers of a block, for kernels that use its elements more than once.
#pragma once

#include <algorithm>

#include "core/error.h"
#include "ops/cuda_kernel.cuh"

namespace hone {

// The part of a row that a thread holds: kHeld packs, blockDim.x packs apart; zero past the row's end. bf16 elements
// are held as pairs in 32-bit words, which saves an instruction for each extraction and insertion.
template <class T, int kPack, int kHeld>
struct HeldRow {
  using A = CudaAccumulator<T>;
  static constexpr bool kPairs = std::is_same_v<T, __nv_bfloat16> && kPack % 2 == 0;
  using Unit = std::conditional_t<kPairs, std::uint32_t, T>;
  static constexpr int kUnits = kPairs ? kPack / 2 : kPack;
  using Held = Pack<Unit, kUnits>;

  Held packs[kHeld];

  // Loads this thread's part. `kKept`: other blocks read the row too (a weight), so that it should stay in the L1
  // cache.
  template <bool kKept = false>
  __device__ void load(const T* row, int packs_a_row) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = static_cast<int>(threadIdx.x) + h * static_cast<int>(blockDim.x);
      packs[h] = Held{};
      if (i >= packs_a_row) continue;
      const Held* from = reinterpret_cast<const Held*>(row) + i;
      packs[h] = kKept ? load_kept<Unit, kUnits>(from->values) : load_streamed<Unit, kUnits>(from->values);
    }
  }
  __device__ void store(T* row, int packs_a_row) const {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = static_cast<int>(threadIdx.x) + h * static_cast<int>(blockDim.x);
      if (i < packs_a_row) reinterpret_cast<Held*>(row)[i] = packs[h];
    }
  }
  // Returns true if pack h is inside the row.
  [[nodiscard]] __device__ static bool holds(int h, int packs_a_row) {
    return static_cast<int>(threadIdx.x) + h * static_cast<int>(blockDim.x) < packs_a_row;
  }
  // Element k of pack h.
  [[nodiscard]] __device__ A at(int h, int k) const {
    if constexpr (kPairs) {
      const std::uint32_t pair = packs[h][k / 2];
      return __uint_as_float(k % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u);
    } else {
      return widened(packs[h][k]);
    }
  }
  // Sets element k of pack h to value(h, k), rounded, for all h and k. `value` may read the element's old value.
  template <class Value>
  __device__ void assign(const Value& value) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        if constexpr (kPairs) {
          const __nv_bfloat162 pair = __floats2bfloat162_rn(value(h, 2 * u), value(h, 2 * u + 1));
          memcpy(&packs[h][u], &pair, sizeof(pair));
        } else {
          packs[h][u] = narrowed<T>(value(h, u));
        }
      }
    }
  }
};

// Calls body.operator()<kPack, kHeld, kMaxThreads>(threads) for rows of n elements. A thread holds kFew packs if
// kFewThreads threads suffice then, otherwise kMany packs, or 16 single elements if n is not a multiple of a pack.
// Throws Error if 512 threads do not hold a row.
template <class T, int kFew, int kMany, int kFewThreads, class Body>
void with_held_row(std::int64_t n, const Body& body) {
  constexpr int kPack = kPackSize<T>;
  constexpr int kScalars = 16;
  const auto threads = [](std::int64_t packs, int held) {
    return static_cast<int>(std::max<std::int64_t>(ceil_div(ceil_div(packs, held), 32), 1) * 32);
  };
  if (n % kPack == 0 && threads(n / kPack, kFew) <= kFewThreads) {
    body.template operator()<kPack, kFew, kFewThreads>(threads(n / kPack, kFew));
  } else if (n % kPack == 0 && threads(n / kPack, kMany) <= 512) {
    body.template operator()<kPack, kMany, 512>(threads(n / kPack, kMany));
  } else if (threads(n, kScalars) <= 512) {
    body.template operator()<1, kScalars, 512>(threads(n, kScalars));
  } else {
    throw Error("norm", text_of("rows of ", n, " elements are longer than the CUDA kernels hold"),
                "use a smaller hidden_size, a multiple of 8");
  }
}

}  // namespace hone
