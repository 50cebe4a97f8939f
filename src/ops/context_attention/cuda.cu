// Attention of pieces of documents. The forward pass has the kernels of ops/attention for any source of keys. The
// backward pass is simple: a warp has a query or a key and goes over the other side one row at a time, without tensor
// cores.
#include "ops/attention/forward.cuh"
#include "ops/bisection.cuh"
#include "ops/context_attention/context_attention.h"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

// Keys and values in the order of the micro-batch, of sequences that begin at some position of a document.
template <class T>
struct PieceKeys {
  static constexpr bool kFp8 = false;
  const T* k;
  const T* v;
  std::int64_t stride;
  const std::int32_t* starts;  // [pieces]: the position of the first query
  const std::int32_t* rows;    // [pieces]: the row of the document's first key

  [[nodiscard]] __device__ std::int64_t start(const SequenceTile& tile) const { return starts[tile.sequence]; }
  [[nodiscard]] __device__ std::int64_t offset(const SequenceTile& tile, std::int64_t key) const {
    return (rows[tile.sequence] + key) * stride;
  }
};

template <class T>
void launch_piece_forward(const TileQueries<T>& queries, const PieceKeys<T>& keys, cudaStream_t stream) {
  launch_simple_attention_forward(queries, keys, stream);
}

#ifndef HONE_HIP
void launch_piece_forward(const TileQueries<__nv_bfloat16>& queries, const PieceKeys<__nv_bfloat16>& keys,
                          cudaStream_t stream) {
  with_tensor_tiles(queries.head_dim, [&]<int kWidth, int kTiles>() {
    launch_tensor_attention_forward<kWidth, 4, kTiles, false>(queries, keys, {}, stream);
  });
}
#endif

template <class T>
void forward(const KernelCall& call) {
  using In = ContextAttentionIn;
  const auto& a = call.attributes_as<AttentionAttributes>();
  check_head_dim(a.head_dim);
  const TensorView& qkv = call.in(In::qkv);
  const TensorView& bounds = call.in(In::piece_bounds);
  const Sequences pieces{
      bounds.as<std::int32_t>(), {.used = nullptr, .capacity = bounds.elements() - 1}, qkv.capacity()};
  const TileQueries<T> queries =
      tile_queries<T>(a, pieces, qkv, call.out(AttentionOut::o), call.out(AttentionOut::lse));
  const T* const k = cuda_data<T>(call.in(In::keys));
  const PieceKeys<T> keys{.k = k,
                          .v = k + a.kv_heads * a.head_dim,
                          .stride = call.in(In::keys).row_size(),
                          .starts = cuda_data<std::int32_t>(call.in(In::piece_starts)),
                          .rows = cuda_data<std::int32_t>(call.in(In::piece_keys))};
  launch_piece_forward(queries, keys, stream_of(call));
}

// Operands and results of the backward pass.
template <class T>
struct PieceGradients {
  using A = CudaAccumulator<T>;
  const T* q;  // rows of q_stride elements, as those of grad_q
  const T* k;  // rows of k_stride elements, as those of v, grad_k and grad_v
  const T* v;
  const T* o;  // [capacity, heads, head_dim], as grad_o
  const T* grad_o;
  const A* lse;  // [capacity, heads]
  A* overlap;    // [capacity, heads]: dot product of grad_o and o
  T* grad_q;
  T* grad_k;
  T* grad_v;
  const std::int32_t* bounds;           // [pieces + 1]
  const std::int32_t* starts;           // [pieces]
  const std::int32_t* piece_keys;       // [pieces]
  const std::int32_t* document_pieces;  // [documents + 1]
  const std::int32_t* cu_seqlens;       // [documents + 1]
  std::int64_t pieces, documents, q_stride, k_stride;
  std::int64_t capacity, key_capacity;  // rows
  std::int32_t heads, kv_heads, head_dim;
  A scale;
};

constexpr int kWarps = 8;      // of a block
constexpr int kHeadParts = 8;  // most elements of a head that a lane has: lane + 32 i

// A lane's elements of a row of head_dim elements.
template <class T>
struct LaneRow {
  CudaAccumulator<T> values[kHeadParts] = {};

  __device__ void load(const T* from, int width) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kHeadParts; ++i) values[i] = lane + 32 * i < width ? widened(from[lane + 32 * i]) : 0;
  }
  __device__ void store(T* to, int width) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kHeadParts; ++i) {
      if (lane + 32 * i < width) to[lane + 32 * i] = narrowed<T>(values[i]);
    }
  }
  [[nodiscard]] __device__ CudaAccumulator<T> dot(const LaneRow& other) const {
    CudaAccumulator<T> sum = 0;
#pragma unroll
    for (int i = 0; i < kHeadParts; ++i) sum = std::fma(values[i], other.values[i], sum);
    return warp_sum(sum);
  }
  __device__ void add(CudaAccumulator<T> factor, const LaneRow& other) {
#pragma unroll
    for (int i = 0; i < kHeadParts; ++i) values[i] = std::fma(factor, other.values[i], values[i]);
  }
};

// dq and overlap of one query and head, which a warp has; keys in ascending order.
template <class T>
__global__ void __launch_bounds__(kWarps * 32) piece_query_gradients(PieceGradients<T> args) {
  using A = CudaAccumulator<T>;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (index >= args.capacity * args.heads) return;
  const std::int64_t row = index / args.heads;
  const std::int64_t head = index % args.heads;
  const int width = args.head_dim;
  T* const grad_q = args.grad_q + row * args.q_stride + head * width;
  LaneRow<T> sum;
  if (row >= args.bounds[args.pieces]) return sum.store(grad_q, width);
  const std::int64_t piece = last_up_to(row, args.bounds, args.pieces);
  const std::int64_t last = args.starts[piece] + row - args.bounds[piece];
  LaneRow<T> q, grad_o, k, v;
  q.load(args.q + row * args.q_stride + head * width, width);
  grad_o.load(args.grad_o + index * width, width);
  v.load(args.o + index * width, width);
  const A overlap = grad_o.dot(v);
  if (threadIdx.x % 32 == 0) args.overlap[index] = overlap;
  const std::int64_t kv_head = head / (args.heads / args.kv_heads);
  for (std::int64_t key = 0; key <= last; ++key) {
    const std::int64_t at = (args.piece_keys[piece] + key) * args.k_stride + kv_head * width;
    k.load(args.k + at, width);
    v.load(args.v + at, width);
    const A weight = std::exp(q.dot(k) * args.scale - args.lse[index]);
    sum.add(weight * (grad_o.dot(v) - overlap) * args.scale, k);
  }
  sum.store(grad_q, width);
}

// dk and dv of one key and key head, which a warp has; pieces of the document in order, of each the query heads of the
// group in order, of each the queries in ascending order.
template <class T>
__global__ void __launch_bounds__(kWarps * 32) piece_key_gradients(PieceGradients<T> args) {
  using A = CudaAccumulator<T>;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (index >= args.key_capacity * args.kv_heads) return;
  const std::int64_t row = index / args.kv_heads;
  const std::int64_t kv_head = index % args.kv_heads;
  const int width = args.head_dim;
  const std::int64_t place = row * args.k_stride + kv_head * width;
  LaneRow<T> grad_k, grad_v, k, v, q, grad_o;
  if (row < args.cu_seqlens[args.documents]) {
    k.load(args.k + place, width);
    v.load(args.v + place, width);
    const std::int64_t document = last_up_to(row, args.cu_seqlens, args.documents);
    const std::int64_t position = row - args.cu_seqlens[document];
    const std::int64_t group = args.heads / args.kv_heads;
    for (std::int64_t piece = args.document_pieces[document]; piece < args.document_pieces[document + 1]; ++piece) {
      const std::int64_t first = args.bounds[piece];
      const std::int64_t skipped = position > args.starts[piece] ? position - args.starts[piece] : 0;
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (std::int64_t query = first + skipped; query < args.bounds[piece + 1]; ++query) {
          const std::int64_t at = query * args.heads + head;
          q.load(args.q + query * args.q_stride + head * width, width);
          grad_o.load(args.grad_o + at * width, width);
          const A weight = std::exp(q.dot(k) * args.scale - args.lse[at]);
          grad_v.add(weight, grad_o);
          grad_k.add(weight * (grad_o.dot(v) - args.overlap[at]) * args.scale, q);
        }
      }
    }
  }
  grad_k.store(args.grad_k + place, width);
  grad_v.store(args.grad_v + place, width);
}

template <class T>
void backward(const KernelCall& call) {
  using In = ContextAttentionBackwardIn;
  using A = CudaAccumulator<T>;
  const auto& a = call.attributes_as<AttentionAttributes>();
  check_head_dim(a.head_dim);
  const TensorView& qkv = call.in(In::qkv);
  const TensorView& keys = call.in(In::keys);
  const std::int64_t values = a.kv_heads * a.head_dim;
  T* const grad_keys = cuda_data<T>(call.out(ContextAttentionBackwardOut::keys));
  const PieceGradients<T> args{.q = cuda_data<T>(qkv),
                               .k = cuda_data<T>(keys),
                               .v = cuda_data<T>(keys) + values,
                               .o = cuda_data<T>(call.in(In::o)),
                               .grad_o = cuda_data<T>(call.in(In::grad_o)),
                               .lse = cuda_data<A>(call.in(In::lse)),
                               .overlap = reinterpret_cast<A*>(call.workspace.data()),
                               .grad_q = cuda_data<T>(call.out(ContextAttentionBackwardOut::qkv)),
                               .grad_k = grad_keys,
                               .grad_v = grad_keys + values,
                               .bounds = cuda_data<std::int32_t>(call.in(In::piece_bounds)),
                               .starts = cuda_data<std::int32_t>(call.in(In::piece_starts)),
                               .piece_keys = cuda_data<std::int32_t>(call.in(In::piece_keys)),
                               .document_pieces = cuda_data<std::int32_t>(call.in(In::document_pieces)),
                               .cu_seqlens = cuda_data<std::int32_t>(call.in(In::cu_seqlens)),
                               .pieces = call.in(In::piece_bounds).elements() - 1,
                               .documents = call.in(In::cu_seqlens).elements() - 1,
                               .q_stride = qkv.row_size(),
                               .k_stride = keys.row_size(),
                               .capacity = qkv.capacity(),
                               .key_capacity = keys.capacity(),
                               .heads = static_cast<std::int32_t>(a.heads),
                               .kv_heads = static_cast<std::int32_t>(a.kv_heads),
                               .head_dim = static_cast<std::int32_t>(a.head_dim),
                               .scale = static_cast<A>(a.scale)};
  // Key and value columns of rows past the count, which the sums over the ranks leave, become zero too.
  check_cuda(cudaMemsetAsync(args.grad_q, 0, qkv.type->bytes(), stream_of(call)), "cudaMemset");
  const auto blocks = [](std::int64_t warps) { return static_cast<unsigned>(ceil_div(warps, kWarps)); };
  if (args.capacity > 0) {
    piece_query_gradients<T><<<blocks(args.capacity * args.heads), kWarps * 32, 0, stream_of(call)>>>(args);
    check_launch("context_attention_backward: queries");
  }
  if (args.key_capacity > 0) {
    piece_key_gradients<T><<<blocks(args.key_capacity * args.kv_heads), kWarps * 32, 0, stream_of(call)>>>(args);
    check_launch("context_attention_backward: keys");
  }
}

// One number (overlap) for each query head of a row.
std::size_t backward_workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  return required(inputs, ContextAttentionBackwardIn::lse, "context_attention_backward").bytes();
}

}  // namespace

void register_context_attention_cuda(KernelRegistry& registry) {
  registry.add("context_attention", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(ContextAttentionIn::qkv).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
  registry.add("context_attention_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(ContextAttentionBackwardIn::qkv).dtype(),
                                    [&]<class T>() { backward<T>(call); });
                },
                backward_workspace});
}

}  // namespace hone
