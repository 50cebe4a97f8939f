#include "ops/attention/attention.h"
#include "ops/attention/backward.cuh"
#include "ops/attention/forward.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

Sequences sequences_of(const TensorView& cu_seqlens, const TensorView& rows) {
  return {cu_seqlens.as<std::int32_t>(), {.used = nullptr, .capacity = cu_seqlens.elements() - 1}, rows.capacity()};
}

// Layout of the forward pass. One sequence may have all rows, so that a row may see as many keys.
ForwardPlan plan_of(const Type& qkv, const Type& cu_seqlens, const AttentionAttributes& a) {
  return {qkv.rows(), cu_seqlens.rows() - 1, a.heads, a.kv_heads, a.head_dim, a.values(), qkv.rows(), false};
}

template <class T>
void forward(const KernelCall& call) {
  const auto& a = call.attributes_as<AttentionAttributes>();
  check_head_dim(a.head_dim);
  const TensorView& qkv = call.in(AttentionIn::qkv);
  const T* q = cuda_data<T>(qkv);
  const TileQueries<T> queries = tile_queries<T>(a, sequences_of(call.in(AttentionIn::cu_seqlens), qkv), qkv,
                                                 call.out(AttentionOut::o), call.out(AttentionOut::lse));
  const PackedKeys<T> keys{.k = q + a.heads * a.head_dim,
                           .v = q + (a.heads + a.kv_heads) * a.head_dim,
                           .stride = qkv.row_size(),
                           .rows = qkv.capacity()};
  launch_attention_forward(queries, keys, plan_of(*qkv.type, *call.in(AttentionIn::cu_seqlens).type, a), call.workspace,
                           stream_of(call));
}

template <class T>
void backward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const auto& a = call.attributes_as<AttentionAttributes>();
  check_head_dim(a.head_dim);
  const TensorView& qkv = call.in(AttentionBackwardIn::qkv);
  const T* q = cuda_data<T>(qkv);
  T* grad_q = cuda_data<T>(call.out(0));
  const std::int64_t k = a.heads * a.head_dim;
  const std::int64_t v = k + a.kv_heads * a.head_dim;
  const AttentionGradients<T> args{.sequences = sequences_of(call.in(AttentionBackwardIn::cu_seqlens), qkv),
                                   .q = q,
                                   .k = q + k,
                                   .v = q + v,
                                   .stride = qkv.row_size(),
                                   .o = cuda_data<T>(call.in(AttentionBackwardIn::o)),
                                   .grad_o = cuda_data<T>(call.in(AttentionBackwardIn::grad_o)),
                                   .lse = cuda_data<A>(call.in(AttentionBackwardIn::lse)),
                                   .overlap = reinterpret_cast<A*>(call.workspace.data()),
                                   .grad_q = grad_q,
                                   .grad_k = grad_q + k,
                                   .grad_v = grad_q + v,
                                   .heads = static_cast<std::int32_t>(a.heads),
                                   .kv_heads = static_cast<std::int32_t>(a.kv_heads),
                                   .head_dim = static_cast<std::int32_t>(a.head_dim),
                                   .value_dim = static_cast<std::int32_t>(a.values()),
                                   .scale = static_cast<A>(a.scale)};
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (launch_wgmma_attention_backward(args, {args.sequences, args.stride}, PackedQueries{}, call.workspace.data(),
                                        stream_of(call))) {
      return;
    }
  }
  launch_attention_output_dot(args, stream_of(call));
  launch_attention_backward(args, stream_of(call));
}

std::size_t forward_workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  if (inputs[AttentionIn::qkv]->dtype != DType::kBf16) return 0;
  return plan_of(*inputs[AttentionIn::qkv], *inputs[AttentionIn::cu_seqlens], attributes.as<AttentionAttributes>())
      .workspace_bytes;
}

// One number (overlap) for each query head of a row, or the workspace of the Hopper kernel, whichever is larger.
std::size_t backward_workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  const std::size_t overlap = inputs[AttentionBackwardIn::lse]->bytes();
  if (inputs[AttentionBackwardIn::qkv]->dtype != DType::kBf16) return overlap;
  const auto& a = attributes.as<AttentionAttributes>();
  const std::int64_t rows = inputs[AttentionBackwardIn::qkv]->rows();
  const std::int64_t sequences = inputs[AttentionBackwardIn::cu_seqlens]->rows() - 1;
  return std::max(overlap, wgmma_backward_bytes({.rows = rows,
                                                 .sequences = sequences,
                                                 .key_rows = rows,
                                                 .key_sequences = sequences,
                                                 .heads = a.heads,
                                                 .head_dim = a.head_dim},
                                                a.values()));
}

}  // namespace

void register_attention_cuda(KernelRegistry& registry) {
  registry.add("attention", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(AttentionIn::qkv).dtype(), [&]<class T>() { forward<T>(call); });
                },
                forward_workspace});
  registry.add("attention_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(AttentionBackwardIn::grad_o).dtype(),
                                    [&]<class T>() { backward<T>(call); });
                },
                backward_workspace});
}

}  // namespace hone
