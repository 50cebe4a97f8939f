// Attention backward without tensor cores, for f32 and f64. Two kernels compute the scores again: one for dq, with a
// few query rows to a warp and a key to a lane; one for dk and dv, with a few keys to a warp and a query row to a lane,
// over the group's query heads and their rows in order. Every gradient is summed in one order.
#pragma once

#include <cmath>

#include "ops/attention/simple_forward.cuh"

namespace hone {

// Operands and results of the backward pass. q, k, v and their gradients are packed in rows of `stride` elements; o and
// its gradient have rows of heads x head_dim.
template <class T>
struct AttentionGradients {
  using A = CudaAccumulator<T>;
  Sequences sequences;
  const T* q;
  const T* k;
  const T* v;
  std::int64_t stride;
  const T* o;
  const T* grad_o;
  const A* lse;  // [capacity, heads]
  A* overlap;    // [capacity, heads]: dot product of grad_o and o, the D of FlashAttention
  T* grad_q;
  T* grad_k;
  T* grad_v;
  std::int32_t heads, kv_heads, head_dim;
  A scale;

  [[nodiscard]] __host__ __device__ std::int32_t group() const { return heads / kv_heads; }
};

// Computes args.overlap. A warp has a token and head.
template <class T>
__global__ void attention_output_dot(AttentionGradients<T> args) {
  using A = CudaAccumulator<T>;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= args.sequences.capacity * args.heads) return;
  constexpr int kSize = kPackSize<T>;  // divides head_dim
  const T* o = args.o + row * args.head_dim;
  const T* grad_o = args.grad_o + row * args.head_dim;
  A sum = 0;
  for (int d = static_cast<int>(threadIdx.x % 32) * kSize; d < args.head_dim; d += 32 * kSize) {
    const auto a = *reinterpret_cast<const Pack<T, kSize>*>(o + d);
    const auto b = *reinterpret_cast<const Pack<T, kSize>*>(grad_o + d);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum = std::fma(widened(a[i]), widened(b[i]), sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) args.overlap[row] = sum;
}

template <class T>
void launch_attention_output_dot(const AttentionGradients<T>& args, cudaStream_t stream) {
  constexpr int kThreads = 256;
  if (args.sequences.capacity == 0) return;
  attention_output_dot<<<static_cast<unsigned>(ceil_div(args.sequences.capacity * args.heads, kThreads / 32)), kThreads,
                         0, stream>>>(args);
  check_launch("attention_backward: overlap");
}

inline constexpr int kSimpleBackwardRows = 8;  // own rows of a block

template <class T>
[[nodiscard]] std::size_t simple_backward_shared_bytes(std::int64_t head_dim) {
  return static_cast<std::size_t>(2 * kSimpleBackwardRows * head_dim + 2 * kSimpleKeys * (head_dim + 1)) *
         sizeof(CudaAccumulator<T>);
}

// Shared memory of a block: its own rows and those of a tile of the other side. Scores are dot products of `own` and
// `other` (q and k, or k and q); gradients of weights are those of `own_gradient` and `other_gradient` (grad_o and v,
// or v and grad_o).
template <class A>
struct SimpleRows {
  A *own, *own_gradient, *other, *other_gradient;
  int width, pitch;

  __device__ SimpleRows(unsigned char* shared, int width_) : width(width_), pitch(width_ + 1) {
    own = reinterpret_cast<A*>(shared);
    own_gradient = own + kSimpleBackwardRows * width;
    other = own_gradient + kSimpleBackwardRows * width;
    other_gradient = other + kSimpleKeys * pitch;
  }
  // Dot products of own row `row` with the lane's row of the tile.
  __device__ void products(int row, int lane, A& score, A& grad_weight) const {
    score = grad_weight = A(0);
    for (int d = 0; d < width; ++d) {
      score = std::fma(own[row * width + d], other[lane * pitch + d], score);
      grad_weight = std::fma(own_gradient[row * width + d], other_gradient[lane * pitch + d], grad_weight);
    }
  }
  // result += the sum, over the lanes in order, of a lane's weight x its row of the tile
  template <int kParts>
  __device__ void add(const A* rows, A weight, int lane, A (&result)[kParts]) const {
    for (int j = 0; j < kSimpleKeys; ++j) {
      const A of_row = __shfl_sync(0xFFFFFFFFu, weight, j);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        if (lane + 32 * i < width) result[i] = std::fma(of_row, rows[j * pitch + lane + 32 * i], result[i]);
      }
    }
  }
};

template <int kParts, class T, class A>
__device__ void write_simple_row(T* to, const A (&values)[kParts], int width, int lane) {
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    if (lane + 32 * i < width) to[lane + 32 * i] = narrowed<T>(values[i]);
  }
}

template <int kParts, class T>
__global__ void __launch_bounds__(kSimpleWarps * 32)
    simple_attention_backward_queries(AttentionGradients<T> args, std::int64_t tiles) {
  using A = CudaAccumulator<T>;
  constexpr int kRows = kSimpleBackwardRows / kSimpleWarps;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const int width = args.head_dim;
  const SimpleRows<A> shared(shared_bytes, width);
  const std::int32_t group = args.group();
  const auto kv_head = static_cast<std::int64_t>(blockIdx.x % args.kv_heads);
  const std::int64_t index = tiles - 1 - blockIdx.x / args.kv_heads;
  const SequenceTile tile = sequence_tile(args.sequences, group, kSimpleBackwardRows, index);
  if (tile.first >= tile.end) return;
  const auto token_of = [&](std::int64_t row) { return tile.token + row / group; };
  const auto head_of = [&](std::int64_t row) { return kv_head * group + row % group; };
  const auto place_of = [&](std::int64_t row) { return token_of(row) * args.stride + head_of(row) * width; };
  load_rows<T>(shared.own, kSimpleBackwardRows, width, width, [&](int i) {
    return !tile.outside && tile.first + i < tile.end ? args.q + place_of(tile.first + i) : nullptr;
  });
  load_rows<T>(shared.own_gradient, kSimpleBackwardRows, width, width, [&](int i) {
    const std::int64_t row = tile.first + i;
    return !tile.outside && row < tile.end ? args.grad_o + (token_of(row) * args.heads + head_of(row)) * width
                                           : nullptr;
  });
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  A lse[kRows] = {};
  A overlap[kRows] = {};
  A grad_q[kRows][kParts] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = tile.first + warp * kRows + r;
    if (row >= tile.end) continue;
    lse[r] = args.lse[token_of(row) * args.heads + head_of(row)];
    overlap[r] = args.overlap[token_of(row) * args.heads + head_of(row)];
  }
  const std::int64_t last = tile.outside ? -1 : (tile.end - 1) / group;
  for (std::int64_t key = 0; key <= last; key += kSimpleKeys) {
    __syncthreads();
    const auto row_of = [&](const T* from, int i) {
      return key + i <= last ? from + (tile.token + key + i) * args.stride + kv_head * width : nullptr;
    };
    load_rows<T>(shared.other, kSimpleKeys, width, shared.pitch, [&](int i) { return row_of(args.k, i); });
    load_rows<T>(shared.other_gradient, kSimpleKeys, width, shared.pitch, [&](int i) { return row_of(args.v, i); });
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t row = tile.first + warp * kRows + r;
      A score, grad_weight;
      shared.products(warp * kRows + r, lane, score, grad_weight);
      const bool seen = row < tile.end && key + lane <= row / group;
      const A weight = seen ? std::exp(score * args.scale - lse[r]) : A(0);
      shared.add(shared.other, weight * (grad_weight - overlap[r]) * args.scale, lane, grad_q[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = tile.first + warp * kRows + r;
    if (row < tile.end) write_simple_row(args.grad_q + place_of(row), grad_q[r], width, lane);
  }
}

template <int kParts, class T>
__global__ void __launch_bounds__(kSimpleWarps * 32)
    simple_attention_backward_keys(AttentionGradients<T> args, std::int64_t tiles) {
  using A = CudaAccumulator<T>;
  constexpr int kRows = kSimpleBackwardRows / kSimpleWarps;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const int width = args.head_dim;
  const SimpleRows<A> shared(shared_bytes, width);
  const auto kv_head = static_cast<std::int64_t>(blockIdx.x % args.kv_heads);
  const SequenceTile tile =
      sequence_tile(args.sequences, 1, kSimpleBackwardRows, blockIdx.x / static_cast<std::int64_t>(args.kv_heads));
  if (tile.first >= tile.end) return;
  const auto place_of = [&](std::int64_t row) { return (tile.token + row) * args.stride + kv_head * width; };
  const auto own_row = [&](const T* from, int i) {
    return !tile.outside && tile.first + i < tile.end ? from + place_of(tile.first + i) : nullptr;
  };
  load_rows<T>(shared.own, kSimpleBackwardRows, width, width, [&](int i) { return own_row(args.k, i); });
  load_rows<T>(shared.own_gradient, kSimpleBackwardRows, width, width, [&](int i) { return own_row(args.v, i); });
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  A grad_k[kRows][kParts] = {};
  A grad_v[kRows][kParts] = {};
  const std::int64_t queries = tile.outside ? 0 : tile.rows;
  for (std::int64_t head = kv_head * args.group(); head < (kv_head + 1) * args.group(); ++head) {
    for (std::int64_t query = tile.first / kSimpleKeys * kSimpleKeys; query < queries; query += kSimpleKeys) {
      __syncthreads();
      load_rows<T>(shared.other, kSimpleKeys, width, shared.pitch, [&](int i) {
        return query + i < queries ? args.q + (tile.token + query + i) * args.stride + head * width : nullptr;
      });
      load_rows<T>(shared.other_gradient, kSimpleKeys, width, shared.pitch, [&](int i) {
        return query + i < queries ? args.grad_o + ((tile.token + query + i) * args.heads + head) * width : nullptr;
      });
      __syncthreads();
      const bool used = query + lane < queries;
      const std::int64_t at = (tile.token + query + lane) * args.heads + head;
      const A lse = used ? args.lse[at] : A(0);
      const A overlap = used ? args.overlap[at] : A(0);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        A score, grad_weight;
        shared.products(warp * kRows + r, lane, score, grad_weight);
        const bool seen = used && query + lane >= tile.first + warp * kRows + r;
        const A weight = seen ? std::exp(score * args.scale - lse) : A(0);
        shared.add(shared.other_gradient, weight, lane, grad_v[r]);
        shared.add(shared.other, weight * (grad_weight - overlap) * args.scale, lane, grad_k[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = tile.first + warp * kRows + r;
    if (row >= tile.end) continue;
    write_simple_row(args.grad_k + place_of(row), grad_k[r], width, lane);
    write_simple_row(args.grad_v + place_of(row), grad_v[r], width, lane);
  }
}

template <class T>
void launch_simple_attention_backward(const AttentionGradients<T>& args, cudaStream_t stream) {
  const std::int64_t query_tiles = tiles_capacity(args.sequences, args.group(), kSimpleBackwardRows);
  const std::int64_t key_tiles = tiles_capacity(args.sequences, 1, kSimpleBackwardRows);
  const std::size_t shared = simple_backward_shared_bytes<T>(args.head_dim);
  with_head_parts(args.head_dim, [&]<int kParts>() {
    const auto launch = [&](auto kernel, std::int64_t tiles) {
      check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
                 "cudaFuncSetAttribute");
      kernel<<<static_cast<unsigned>(tiles * args.kv_heads), kSimpleWarps * 32, shared, stream>>>(args, tiles);
      check_launch("attention_backward");
    };
    launch(simple_attention_backward_queries<kParts, T>, query_tiles);
    launch(simple_attention_backward_keys<kParts, T>, key_tiles);
  });
}

}  // namespace hone
