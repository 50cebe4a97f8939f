// Attention forward without tensor cores, for f32 and f64. A warp has a few query rows and each lane one key of a tile;
// tiles of 32 keys are counted from the sequence's start. A row's result depends only on its query and on the keys up
// to its position.
#pragma once

#include <cmath>
#include <limits>

#include "ops/attention/tiles.cuh"

namespace hone {

inline constexpr int kSimpleWarps = 4;
inline constexpr int kSimpleKeys = 32;         // keys of a tile
inline constexpr int kSimpleForwardRows = 16;  // query rows of a block

// Calls body.operator()<kParts>(), where kParts is the number of elements of a head that a lane has: lane + 32 i.
template <class Body>
void with_head_parts(std::int64_t head_dim, const Body& body) {
  if (head_dim <= 128) {
    body.template operator()<4>();
  } else {
    body.template operator()<8>();
  }
}

// Copies rows of `width` elements to shared memory, `pitch` elements apart; source(row) is null for a row of zeros.
template <class T, class A, class Source>
__device__ void load_rows(A* shared, int rows, int width, int pitch, const Source& source) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = warp; row < rows; row += kSimpleWarps) {
    const T* from = source(row);
    for (int d = lane; d < width; d += 32) shared[row * pitch + d] = from != nullptr ? widened(from[d]) : A(0);
  }
}

template <class T>
[[nodiscard]] std::size_t simple_forward_shared_bytes(std::int64_t head_dim) {
  return static_cast<std::size_t>(kSimpleForwardRows * head_dim + 2 * kSimpleKeys * (head_dim + 1)) *
         sizeof(CudaAccumulator<T>);
}

// o and lse of kSimpleForwardRows query rows of one key head, which a block has.
template <int kParts, class T, class Keys>
__global__ void __launch_bounds__(kSimpleWarps * 32)
    simple_attention_forward(TileQueries<T> queries, Keys keys, std::int64_t tiles) {
  using A = CudaAccumulator<T>;
  constexpr int kRows = kSimpleForwardRows / kSimpleWarps;  // rows of a warp
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const int width = queries.head_dim;
  const int pitch = width + 1;
  A* shared_q = reinterpret_cast<A*>(shared_bytes);
  A* shared_k = shared_q + kSimpleForwardRows * width;
  A* shared_v = shared_k + kSimpleKeys * pitch;

  const std::int32_t group = queries.group();
  const auto kv_head = static_cast<std::int32_t>(blockIdx.x % queries.kv_heads);
  const std::int64_t index = tiles - 1 - blockIdx.x / queries.kv_heads;  // the longest first
  const SequenceTile tile = sequence_tile(queries.sequences, group, kSimpleForwardRows, index);
  if (tile.first >= tile.end) return;
  if (tile.outside) {
    write_zero_rows(queries, tile, kv_head);
    return;
  }
  const auto head_of = [&](std::int64_t row) { return static_cast<std::int64_t>(kv_head) * group + row % group; };
  load_rows<T>(shared_q, kSimpleForwardRows, width, width, [&](int i) -> const T* {
    const std::int64_t row = tile.first + i;
    if (row >= tile.end) return nullptr;
    return queries.q + (tile.token + row / group) * queries.q_stride + head_of(row) * width;
  });

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t start = keys.start(tile);
  std::int64_t position[kRows];
  A o[kRows][kParts] = {};
  A greatest[kRows];
  A sum[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    position[r] = start + (tile.first + warp * kRows + r) / group;
    greatest[r] = -std::numeric_limits<A>::infinity();
  }
  const std::int64_t last = start + (tile.end - 1) / group;
  for (std::int64_t key = 0; key <= last; key += kSimpleKeys) {
    __syncthreads();
    const auto row_of = [&](const T* from, int i) {
      return key + i <= last ? from + keys.offset(tile, key + i) + static_cast<std::int64_t>(kv_head) * width : nullptr;
    };
    load_rows<T>(shared_k, kSimpleKeys, width, pitch, [&](int i) { return row_of(keys.k, i); });
    load_rows<T>(shared_v, kSimpleKeys, width, pitch, [&](int i) { return row_of(keys.v, i); });
    __syncthreads();

    A weight[kRows] = {};
    for (int d = 0; d < width; ++d) {
      const A k = shared_k[lane * pitch + d];
#pragma unroll
      for (int r = 0; r < kRows; ++r) weight[r] = std::fma(shared_q[(warp * kRows + r) * width + d], k, weight[r]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (key > position[r]) {
        weight[r] = A(0);
        continue;
      }
      const A score = key + lane <= position[r] ? weight[r] * queries.scale : -std::numeric_limits<A>::infinity();
      const A here = warp_max(score);
      const A most = here > greatest[r] ? here : greatest[r];
      const A decay = std::exp(greatest[r] - most);
      weight[r] = std::exp(score - most);
      sum[r] = std::fma(sum[r], decay, warp_sum(weight[r]));
      greatest[r] = most;
#pragma unroll
      for (int i = 0; i < kParts; ++i) o[r][i] *= decay;
    }
    for (int j = 0; j < kSimpleKeys; ++j) {
      A of_key[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) of_key[r] = __shfl_sync(0xFFFFFFFFu, weight[r], j);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        if (lane + 32 * i >= width) continue;
        const A v = shared_v[j * pitch + lane + 32 * i];
#pragma unroll
        for (int r = 0; r < kRows; ++r) o[r][i] = std::fma(of_key[r], v, o[r][i]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = tile.first + warp * kRows + r;
    if (row >= tile.end) continue;
    const std::int64_t head = (tile.token + row / group) * queries.heads + head_of(row);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (lane + 32 * i < width) queries.o[head * width + lane + 32 * i] = narrowed<T>(o[r][i] / sum[r]);
    }
    if (lane == 0) queries.lse[head] = greatest[r] + std::log(sum[r]);
  }
}

template <class T, class Keys>
void launch_simple_attention_forward(const TileQueries<T>& queries, const Keys& keys, cudaStream_t stream) {
  const std::int64_t tiles = tiles_capacity(queries.sequences, queries.group(), kSimpleForwardRows);
  const std::size_t shared = simple_forward_shared_bytes<T>(queries.head_dim);
  with_head_parts(queries.head_dim, [&]<int kParts>() {
    const auto kernel = simple_attention_forward<kParts, T, Keys>;
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
               "cudaFuncSetAttribute");
    kernel<<<static_cast<unsigned>(tiles * queries.kv_heads), kSimpleWarps * 32, shared, stream>>>(queries, keys,
                                                                                                   tiles);
    check_launch("attention");
  });
}

}  // namespace hone
