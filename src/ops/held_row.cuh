// Rows that a block holds in its threads' registers, for kernels that go over a row more than once.
#pragma once

#include <algorithm>

#include "core/error.h"
#include "ops/cuda_kernel.cuh"

namespace hone {

// The part of a row that a thread holds: kHeld packs, a block's width apart; zero past the row's end.
template <class T, int kPack, int kHeld>
struct HeldRow {
  Pack<T, kPack> packs[kHeld];

  // `kKept`: what other blocks read too.
  template <bool kKept = false>
  __device__ void load(const T* row, int packs_a_row) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = static_cast<int>(threadIdx.x) + h * static_cast<int>(blockDim.x);
      packs[h] = Pack<T, kPack>{};
      if (i >= packs_a_row) continue;
      packs[h] = kKept ? reinterpret_cast<const Pack<T, kPack>*>(row)[i] : load_streamed<T, kPack>(row + i * kPack);
    }
  }
  __device__ void store(T* row, int packs_a_row) const {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = static_cast<int>(threadIdx.x) + h * static_cast<int>(blockDim.x);
      if (i < packs_a_row) reinterpret_cast<Pack<T, kPack>*>(row)[i] = packs[h];
    }
  }
  [[nodiscard]] __device__ static bool holds(int h, int packs_a_row) {
    return static_cast<int>(threadIdx.x) + h * static_cast<int>(blockDim.x) < packs_a_row;
  }
  [[nodiscard]] __device__ CudaAccumulator<T> at(int h, int k) const { return widened(packs[h][k]); }
  __device__ void set(int h, int k, CudaAccumulator<T> value) { packs[h][k] = narrowed<T>(value); }
};

// body.operator()<kPack, kHeld, kMaxThreads>(threads) for rows of n elements: kFew packs a thread if that is enough.
template <class T, int kFew, int kMany, class Body>
void with_held_row(std::int64_t n, const Body& body) {
  constexpr int kPack = kPackSize<T>;
  constexpr int kScalars = 16;
  const auto threads = [](std::int64_t packs, int held) {
    return static_cast<int>(std::max<std::int64_t>(ceil_div(ceil_div(packs, held), 32), 1) * 32);
  };
  if (n % kPack == 0 && threads(n / kPack, kFew) <= 1024) {
    body.template operator()<kPack, kFew, 1024>(threads(n / kPack, kFew));
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
