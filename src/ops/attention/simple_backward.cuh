// Attention backward without tensor cores, for the dtypes of simple_forward.cuh. Two kernels compute the scores again:
// one for dq, with a few query rows to a warp and a key to a lane; one for dk and dv, with a few keys to a warp and a
// query row to a lane, over the group's query heads and their rows in order. Every gradient is summed in one order.
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
  std::int32_t value_dim;  // the columns of a value head from here on are zero
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

// Own rows of a block in shared memory, `width` elements apart, and its tiles of the other side. Scores are dot
// products of `own` and the tile's first rows (q and k, or k and q); gradients of weights are those of `own_gradient`
// and the second rows (grad_o and v, or v and grad_o).
template <class T>
struct SimpleRows {
  static constexpr int kRows = kSimpleBackwardRows / kSimpleWarps;  // of a warp
  T *own, *own_gradient, *staged;
  SimpleTiles<T> tiles;
  int width, pitch;

  __device__ SimpleRows(unsigned char* shared, int width_, int stages)
      : own(reinterpret_cast<T*>(shared)),
        own_gradient(own + kSimpleBackwardRows * width_),
        staged(own_gradient + kSimpleBackwardRows * width_),
        tiles{staged + staged_weights<T>(kSimpleBackwardRows), width_, stages},
        width(width_),
        pitch(simple_pitch<T>(width_)) {}
  // Dot products of the warp's rows with the lane's row of the tile.
  __device__ void products(const T* other, const T* other_gradient, T (&score)[kRows], T (&grad_weight)[kRows]) const {
    const int first = static_cast<int>(threadIdx.x) / 32 * kRows;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < kRows; ++r) score[r] = grad_weight[r] = T(0);
    for (int d = 0; d < width; d += kPackSize<T>) {
      const auto a = pack_at(other + lane * pitch + d);
      const auto b = pack_at(other_gradient + lane * pitch + d);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const auto own_a = pack_at(own + (first + r) * width + d);
        const auto own_b = pack_at(own_gradient + (first + r) * width + d);
#pragma unroll
        for (int e = 0; e < kPackSize<T>; ++e) {
          score[r] = std::fma(own_a[e], a[e], score[r]);
          grad_weight[r] = std::fma(own_b[e], b[e], grad_weight[r]);
        }
      }
    }
  }
  // Adds to `result` of the warp's rows as add_weighted() does.
  template <int kParts>
  __device__ void add(const T* rows, const T (&weight)[kRows], T (&result)[kRows][kParts]) const {
    add_weighted(rows, width, weight, staged + static_cast<int>(threadIdx.x) / 32 * kRows * kSimpleKeys, result);
  }
};

template <int kParts, class T>
__device__ void write_simple_row(T* to, const CudaAccumulator<T> (&values)[kParts], int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    if (lane + 32 * part < width) to[lane + 32 * part] = narrowed<T>(values[part]);
  }
}

template <int kParts, class T>
__global__ void __launch_bounds__(kSimpleWarps * 32)
    simple_attention_backward_queries(AttentionGradients<T> args, std::int64_t tiles, int stages) {
  using A = CudaAccumulator<T>;
  constexpr int kRows = SimpleRows<A>::kRows;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const int width = args.head_dim;
  const SimpleRows<A> shared(shared_bytes, width, stages);
  const std::int32_t group = args.group();
  const auto kv_head = static_cast<std::int64_t>(blockIdx.x % args.kv_heads);
  const std::int64_t index = tiles - 1 - blockIdx.x / args.kv_heads;
  begin_dependent_kernel();
  const SequenceTile tile = sequence_tile(args.sequences, group, kSimpleBackwardRows, index);
  if (tile.first >= tile.end) return;
  const auto token_of = [&](std::int64_t row) { return tile.token + row / group; };
  const auto head_of = [&](std::int64_t row) { return kv_head * group + row % group; };
  const auto place_of = [&](std::int64_t row) { return token_of(row) * args.stride + head_of(row) * width; };
  const auto own_query = [&](int i) {
    return !tile.outside && tile.first + i < tile.end ? args.q + place_of(tile.first + i) : nullptr;
  };
  const auto own_gradient = [&](int i) {
    const std::int64_t row = tile.first + i;
    return !tile.outside && row < tile.end ? args.grad_o + (token_of(row) * args.heads + head_of(row)) * width
                                           : nullptr;
  };
  start_rows(shared.own, kSimpleBackwardRows, width, width, own_query, args.q);
  start_rows(shared.own_gradient, kSimpleBackwardRows, width, width, own_gradient, args.grad_o);
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
  const std::int64_t keys = tile.outside ? 0 : (tile.end - 1) / group + 1;
  const auto copy = [&](int i, A* k, A* v) {
    const std::int64_t key = static_cast<std::int64_t>(i) * kSimpleKeys;
    const auto row_of = [&](const T* from, int row) {
      return key + row < keys ? from + (tile.token + key + row) * args.stride + kv_head * width : nullptr;
    };
    start_rows(k, kSimpleKeys, width, shared.pitch, [&](int row) { return row_of(args.k, row); }, args.k);
    start_rows(v, kSimpleKeys, width, shared.pitch, [&](int row) { return row_of(args.v, row); }, args.v);
  };
  const auto use = [&](int i, const A* k, const A* v) {
    const std::int64_t key = static_cast<std::int64_t>(i) * kSimpleKeys;
    A score[kRows];
    A grad_weight[kRows];
    shared.products(k, v, score, grad_weight);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t row = tile.first + warp * kRows + r;
      const bool seen = row < tile.end && key + lane <= row / group;
      const A weight = seen ? std::exp(score[r] * args.scale - lse[r]) : A(0);
      score[r] = weight * (grad_weight[r] - overlap[r]) * args.scale;
    }
    shared.add(k, score, grad_q);
  };
  shared.tiles.for_each(static_cast<int>((keys + kSimpleKeys - 1) / kSimpleKeys), copy, use);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = tile.first + warp * kRows + r;
    if (row < tile.end) write_simple_row(args.grad_q + place_of(row), grad_q[r], width);
  }
}

template <int kParts, class T>
__global__ void __launch_bounds__(kSimpleWarps * 32)
    simple_attention_backward_keys(AttentionGradients<T> args, std::int64_t, int stages) {
  using A = CudaAccumulator<T>;
  constexpr int kRows = SimpleRows<A>::kRows;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const int width = args.head_dim;
  const SimpleRows<A> shared(shared_bytes, width, stages);
  const auto kv_head = static_cast<std::int64_t>(blockIdx.x % args.kv_heads);
  begin_dependent_kernel();
  const SequenceTile tile =
      sequence_tile(args.sequences, 1, kSimpleBackwardRows, blockIdx.x / static_cast<std::int64_t>(args.kv_heads));
  if (tile.first >= tile.end) return;
  const auto place_of = [&](std::int64_t row) { return (tile.token + row) * args.stride + kv_head * width; };
  const auto own_row = [&](const T* from, int i) {
    return !tile.outside && tile.first + i < tile.end ? from + place_of(tile.first + i) : nullptr;
  };
  start_rows(shared.own, kSimpleBackwardRows, width, width, [&](int i) { return own_row(args.k, i); }, args.k);
  start_rows(shared.own_gradient, kSimpleBackwardRows, width, width, [&](int i) { return own_row(args.v, i); }, args.v);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  A grad_k[kRows][kParts] = {};
  A grad_v[kRows][kParts] = {};
  // Tiles of query rows: those of the group's first head in order, then those of the next head.
  const std::int64_t queries = tile.outside ? 0 : tile.rows;
  const std::int64_t begin = tile.first / kSimpleKeys * kSimpleKeys;
  const int tiles_a_head = tile.outside ? 0 : static_cast<int>((queries - begin + kSimpleKeys - 1) / kSimpleKeys);
  const auto head_of = [&](int i) { return kv_head * args.group() + i / tiles_a_head; };
  const auto query_of = [&](int i) { return begin + static_cast<std::int64_t>(i % tiles_a_head) * kSimpleKeys; };
  const auto copy = [&](int i, A* q, A* grad_o) {
    const std::int64_t head = head_of(i);
    const std::int64_t query = query_of(i);
    const auto query_row = [&](int row) {
      return query + row < queries ? args.q + (tile.token + query + row) * args.stride + head * width : nullptr;
    };
    const auto gradient_row = [&](int row) {
      return query + row < queries ? args.grad_o + ((tile.token + query + row) * args.heads + head) * width : nullptr;
    };
    start_rows(q, kSimpleKeys, width, shared.pitch, query_row, args.q);
    start_rows(grad_o, kSimpleKeys, width, shared.pitch, gradient_row, args.grad_o);
  };
  const auto use = [&](int i, const A* q, const A* grad_o) {
    const std::int64_t query = query_of(i);
    const bool used = query + lane < queries;
    const std::int64_t at = (tile.token + query + lane) * args.heads + head_of(i);
    const A lse = used ? args.lse[at] : A(0);
    const A overlap = used ? args.overlap[at] : A(0);
    A score[kRows];
    A grad_weight[kRows];
    A weight[kRows];
    shared.products(q, grad_o, score, grad_weight);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool seen = used && query + lane >= tile.first + warp * kRows + r;
      weight[r] = seen ? std::exp(score[r] * args.scale - lse) : A(0);
      score[r] = weight[r] * (grad_weight[r] - overlap) * args.scale;
    }
    shared.add(grad_o, weight, grad_v);
    shared.add(q, score, grad_k);
  };
  shared.tiles.for_each(tiles_a_head * args.group(), copy, use);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = tile.first + warp * kRows + r;
    if (row >= tile.end) continue;
    write_simple_row(args.grad_k + place_of(row), grad_k[r], width);
    write_simple_row(args.grad_v + place_of(row), grad_v[r], width);
  }
}

template <class T>
void launch_simple_attention_backward(const AttentionGradients<T>& args, cudaStream_t stream) {
  const std::int64_t query_tiles = tiles_capacity(args.sequences, args.group(), kSimpleBackwardRows);
  const std::int64_t key_tiles = tiles_capacity(args.sequences, 1, kSimpleBackwardRows);
  using A = CudaAccumulator<T>;
  const SimpleShared<A> shared(args.head_dim,
                               2 * kSimpleBackwardRows * args.head_dim + staged_weights<A>(kSimpleBackwardRows));
  with_head_parts(args.head_dim, [&]<int kParts>() {
    const auto launch = [&](auto kernel, std::int64_t tiles) {
      check_cuda(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared.bytes)),
          "cudaFuncSetAttribute");
      launch_dependent({static_cast<unsigned>(tiles * args.kv_heads), kSimpleWarps * 32, shared.bytes}, stream, kernel,
                       args, tiles, shared.stages);
      check_launch("attention_backward");
    };
    launch(simple_attention_backward_queries<kParts, T>, query_tiles);
    launch(simple_attention_backward_keys<kParts, T>, key_tiles);
  });
}

}  // namespace hone
