// Attention of pieces of documents. The forward pass has the kernels of ops/attention for any source of keys, so that a
// row has the bits of attention() over the whole documents on the same device. The backward pass is the Hopper kernel
// of ops/attention if it takes the heads; the gradient of a query then has the bits of attention() too, because blocks
// of keys are counted from the start of the document. Otherwise it is simple: a warp has a query or a key and goes over
// the other side one row at a time, without tensor cores.
#include <algorithm>
#include <type_traits>

#include "ops/attention/backward.cuh"
#include "ops/attention/forward.cuh"
#include "ops/bisection.cuh"
#include "ops/context_attention/context_attention.h"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

Sequences pieces_of(const TensorView& bounds, const TensorView& rows) {
  return {bounds.as<std::int32_t>(), {.used = nullptr, .capacity = bounds.elements() - 1}, rows.capacity()};
}

// Layout of the forward pass. A document may have all tokens of the micro-batch, so that a row may see as many keys.
ForwardPlan plan_of(const Type& qkv, const Type& keys, const Type& piece_bounds, const AttentionAttributes& a) {
  return {qkv.rows(), piece_bounds.rows() - 1, a.heads, a.kv_heads, a.head_dim, a.values(), keys.rows(), false};
}

template <class T>
void forward(const KernelCall& call) {
  using In = ContextAttentionIn;
  const auto& a = call.attributes_as<AttentionAttributes>();
  check_head_dim(a.head_dim);
  const TensorView& qkv = call.in(In::qkv);
  const TensorView& bounds = call.in(In::piece_bounds);
  const TensorView& keys = call.in(In::keys);
  const TileQueries<T> queries =
      tile_queries<T>(a, pieces_of(bounds, qkv), qkv, call.out(AttentionOut::o), call.out(AttentionOut::lse));
  const T* const k = cuda_data<T>(keys);
  const PieceKeys<T> of_documents{.k = k,
                                  .v = k + a.kv_heads * a.head_dim,
                                  .stride = keys.row_size(),
                                  .rows = keys.capacity(),
                                  .starts = cuda_data<std::int32_t>(call.in(In::piece_starts)),
                                  .first_rows = cuda_data<std::int32_t>(call.in(In::piece_keys))};
  launch_attention_forward(queries, of_documents, plan_of(*qkv.type, *keys.type, *bounds.type, a), call.workspace,
                           stream_of(call));
}

std::size_t forward_workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  using In = ContextAttentionIn;
  if (inputs[In::qkv]->dtype != DType::kBf16) return 0;
  return plan_of(*inputs[In::qkv], *inputs[In::keys], *inputs[In::piece_bounds], attributes.as<AttentionAttributes>())
      .workspace_bytes;
}

// Operands and results of the backward pass.
template <class T>
struct PieceGradients {
  AttentionGradients<T> args;  // sequences: the pieces; stride: of q and grad_q
  BackwardKeys keys;           // the documents; stride: of k, v, grad_k and grad_v
  PieceQueries queries;
  const std::int32_t* first_rows;  // [pieces]: the row of the document's first key
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
__global__ void __launch_bounds__(kWarps * 32) piece_query_gradients(PieceGradients<T> gradients) {
  using A = CudaAccumulator<T>;
  const AttentionGradients<T>& args = gradients.args;
  const PieceQueries& queries = gradients.queries;
  const std::int64_t pieces = args.sequences.count.capacity;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (index >= args.sequences.capacity * args.heads) return;
  const std::int64_t row = index / args.heads;
  const std::int64_t head = index % args.heads;
  const int width = args.head_dim;
  T* const grad_q = args.grad_q + row * args.stride + head * width;
  LaneRow<T> sum;
  if (row >= queries.bounds[pieces]) return sum.store(grad_q, width);
  const std::int64_t piece = last_up_to(row, queries.bounds, pieces);
  const std::int64_t last = queries.starts[piece] + row - queries.bounds[piece];
  LaneRow<T> q, grad_o, k, v;
  q.load(args.q + row * args.stride + head * width, width);
  grad_o.load(args.grad_o + index * width, width);
  v.load(args.o + index * width, width);
  const A overlap = grad_o.dot(v);
  if (threadIdx.x % 32 == 0) args.overlap[index] = overlap;
  const std::int64_t kv_head = head / args.group();
  for (std::int64_t key = 0; key <= last; ++key) {
    const std::int64_t at = (gradients.first_rows[piece] + key) * gradients.keys.stride + kv_head * width;
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
__global__ void __launch_bounds__(kWarps * 32) piece_key_gradients(PieceGradients<T> gradients) {
  using A = CudaAccumulator<T>;
  const AttentionGradients<T>& args = gradients.args;
  const PieceQueries& queries = gradients.queries;
  const Sequences& documents = gradients.keys.sequences;
  const std::int64_t count = documents.count.capacity;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (index >= documents.capacity * args.kv_heads) return;
  const std::int64_t row = index / args.kv_heads;
  const std::int64_t kv_head = index % args.kv_heads;
  const int width = args.head_dim;
  const std::int64_t place = row * gradients.keys.stride + kv_head * width;
  LaneRow<T> grad_k, grad_v, k, v, q, grad_o;
  if (row < documents.cu_seqlens[count]) {
    k.load(args.k + place, width);
    v.load(args.v + place, width);
    const std::int64_t document = last_up_to(row, documents.cu_seqlens, count);
    const std::int64_t position = row - documents.cu_seqlens[document];
    const std::int64_t group = args.group();
    for (std::int64_t piece = queries.document_pieces[document]; piece < queries.document_pieces[document + 1];
         ++piece) {
      const std::int64_t first = queries.bounds[piece];
      const std::int64_t skipped = position > queries.starts[piece] ? position - queries.starts[piece] : 0;
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (std::int64_t query = first + skipped; query < queries.bounds[piece + 1]; ++query) {
          const std::int64_t at = query * args.heads + head;
          q.load(args.q + query * args.stride + head * width, width);
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
[[nodiscard]] PieceGradients<T> gradients_of(const KernelCall& call) {
  using In = ContextAttentionBackwardIn;
  using A = CudaAccumulator<T>;
  const auto& a = call.attributes_as<AttentionAttributes>();
  const TensorView& qkv = call.in(In::qkv);
  const TensorView& keys = call.in(In::keys);
  const TensorView& documents = call.in(In::cu_seqlens);
  const std::int64_t values = a.kv_heads * a.head_dim;
  const T* const k = cuda_data<T>(keys);
  T* const grad_keys = cuda_data<T>(call.out(ContextAttentionBackwardOut::keys));
  const Sequences pieces = pieces_of(call.in(In::piece_bounds), qkv);
  return {.args = {.sequences = pieces,
                   .q = cuda_data<T>(qkv),
                   .k = k,
                   .v = k + values,
                   .stride = qkv.row_size(),
                   .o = cuda_data<T>(call.in(In::o)),
                   .grad_o = cuda_data<T>(call.in(In::grad_o)),
                   .lse = cuda_data<A>(call.in(In::lse)),
                   .overlap = reinterpret_cast<A*>(call.workspace.data()),
                   .grad_q = cuda_data<T>(call.out(ContextAttentionBackwardOut::qkv)),
                   .grad_k = grad_keys,
                   .grad_v = grad_keys + values,
                   .heads = static_cast<std::int32_t>(a.heads),
                   .kv_heads = static_cast<std::int32_t>(a.kv_heads),
                   .head_dim = static_cast<std::int32_t>(a.head_dim),
                   .value_dim = static_cast<std::int32_t>(a.values()),
                   .scale = static_cast<A>(a.scale)},
          .keys = {pieces_of(documents, keys), keys.row_size()},
          .queries = {.bounds = pieces.cu_seqlens,
                      .starts = cuda_data<std::int32_t>(call.in(In::piece_starts)),
                      .document_pieces = cuda_data<std::int32_t>(call.in(In::document_pieces))},
          .first_rows = cuda_data<std::int32_t>(call.in(In::piece_keys))};
}

template <class T>
void backward(const KernelCall& call) {
  check_head_dim(call.attributes_as<AttentionAttributes>().head_dim);
  const PieceGradients<T> gradients = gradients_of<T>(call);
  const AttentionGradients<T>& args = gradients.args;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (launch_wgmma_attention_backward(args, gradients.keys, gradients.queries, call.workspace.data(),
                                        stream_of(call))) {
      return;
    }
  }
  const auto blocks = [](std::int64_t warps) { return static_cast<unsigned>(ceil_div(warps, kWarps)); };
  if (const std::int64_t warps = args.sequences.capacity * args.heads; warps > 0) {
    piece_query_gradients<T><<<blocks(warps), kWarps * 32, 0, stream_of(call)>>>(gradients);
    check_launch("context_attention_backward: queries");
  }
  if (const std::int64_t warps = gradients.keys.sequences.capacity * args.kv_heads; warps > 0) {
    piece_key_gradients<T><<<blocks(warps), kWarps * 32, 0, stream_of(call)>>>(gradients);
    check_launch("context_attention_backward: keys");
  }
}

// One number (overlap) for each query head of a row, or the workspace of the Hopper kernel, whichever is larger.
std::size_t backward_workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  using In = ContextAttentionBackwardIn;
  const std::size_t overlap = required(inputs, In::lse, "context_attention_backward").bytes();
  if (inputs[In::qkv]->dtype != DType::kBf16) return overlap;
  const auto& a = attributes.as<AttentionAttributes>();
  return std::max(overlap, wgmma_backward_bytes({.rows = inputs[In::qkv]->rows(),
                                                 .sequences = inputs[In::piece_bounds]->rows() - 1,
                                                 .key_rows = inputs[In::keys]->rows(),
                                                 .key_sequences = inputs[In::cu_seqlens]->rows() - 1,
                                                 .heads = a.heads,
                                                 .head_dim = a.head_dim},
                                                a.values()));
}

}  // namespace

void register_context_attention_cuda(KernelRegistry& registry) {
  registry.add("context_attention", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(ContextAttentionIn::qkv).dtype(), [&]<class T>() { forward<T>(call); });
                },
                forward_workspace});
  registry.add("context_attention_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(ContextAttentionBackwardIn::qkv).dtype(),
                                    [&]<class T>() { backward<T>(call); });
                },
                backward_workspace});
}

}  // namespace hone
