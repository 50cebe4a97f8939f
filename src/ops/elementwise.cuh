// Elementwise kernels: each output element is a function of the same element of the inputs.
#pragma once

#include <algorithm>

#include "ops/cuda_kernel.cuh"

namespace hone {

inline constexpr int kElementwiseThreads = 256;
inline constexpr int kElementwisePacks = 4;  // packs of a thread

// Number of elements of the widest type in 16 bytes.
template <class... Ts>
inline constexpr int kCommonPack = std::min({kPackSize<Ts>...});

// A thread's part of one operand: packs that are kElementwiseThreads packs apart.
template <class T, int kPack>
struct ElementwiseTile {
  Pack<T, kPack> packs[kElementwisePacks];
};

template <int kPack, class T>
[[nodiscard]] __device__ ElementwiseTile<T, kPack> load_tile(const T* from) {
  ElementwiseTile<T, kPack> tile;
#pragma unroll
  for (int i = 0; i < kElementwisePacks; ++i) {
    tile.packs[i] = load_streamed<T, kPack>(from + i * kElementwiseThreads * kPack);
  }
  return tile;
}

template <int kPack, class To, class Function, class... Tiles>
__device__ void store_results(To* to, const Function& function, const Tiles&... tiles) {
#pragma unroll
  for (int i = 0; i < kElementwisePacks; ++i) {
    Pack<To, kPack> result;
#pragma unroll
    for (int k = 0; k < kPack; ++k) result[k] = function(tiles.packs[i][k]...);
    *reinterpret_cast<Pack<To, kPack>*>(to + i * kElementwiseThreads * kPack) = result;
  }
}

// Computes to[i] = function(from[i]...), and 0 past the rows in use.
template <class To, class Function, class... From>
__global__ void __launch_bounds__(kElementwiseThreads)
    elementwise_kernel(To* to, RowCount rows, std::int64_t row_size, Function function, const From*... from) {
  constexpr int kPack = kCommonPack<To, From...>;
  constexpr int kBlock = kElementwiseThreads * kElementwisePacks * kPack;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kBlock;
  const std::int64_t elements = rows.capacity * row_size;
  begin_dependent_kernel();
  if (begin + kBlock <= elements) {
    // The loads do not depend on the count, so that they do not wait for it.
    const std::int64_t mine = begin + static_cast<int>(threadIdx.x) * kPack;
    const auto store = [&](const auto&... tiles) {
      if (begin + kBlock <= rows.get() * row_size) {
        store_results<kPack>(to + mine, function, tiles...);
        return true;
      }
      return false;
    };
    if (store(load_tile<kPack>(from + mine)...)) return;
  }
  const std::int64_t used = rows.get() * row_size;
  const std::int64_t end = begin + kBlock < elements ? begin + kBlock : elements;
  // The block at the end of the rows in use, or of the tensor: packs as far as they are whole.
  const std::int64_t whole = (used < end ? used : end) / kPack * kPack;
#pragma unroll 2
  for (std::int64_t i = begin + static_cast<int>(threadIdx.x) * kPack; i < whole; i += kElementwiseThreads * kPack) {
    Pack<To, kPack> result;
    const auto apply = [&](const auto&... packs) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) result[k] = function(packs[k]...);
    };
    apply(load_streamed<From, kPack>(from + i)...);
    *reinterpret_cast<Pack<To, kPack>*>(to + i) = result;
  }
  for (std::int64_t i = (whole > begin ? whole : begin) + threadIdx.x; i < end; i += kElementwiseThreads) {
    to[i] = i < used ? static_cast<To>(function(from[i]...)) : To(0);
  }
}

// Launches the kernel. `to` has the elements of the call's output 0, and each of `from` as many; no pointer may be
// null.
template <class To, class Function, class... From>
void launch_elementwise(const KernelCall& call, To* to, const Function& function, const From*... from) {
  const TensorView& view = call.out(0);
  constexpr int kBlock = kElementwiseThreads * kElementwisePacks * kCommonPack<To, From...>;
  const std::int64_t blocks = ceil_div(view.elements(), kBlock);
  if (blocks == 0) return;
  launch_dependent({static_cast<unsigned>(blocks), kElementwiseThreads}, stream_of(call),
                   elementwise_kernel<To, Function, From...>, to, row_count(view), view.row_size(), function, from...);
  check_launch("elementwise kernel");
}

}  // namespace hone
