#include "ops/attention/cpu_operands.h"
#include "ops/context_attention/context_attention.h"
#include "ops/registry.h"

namespace hone {
namespace {

// In: ContextAttentionIn or ContextAttentionBackwardIn.
template <class In>
AttentionPieces pieces_of(const KernelCall& call) {
  return {.starts = ids_of(call.in(In::piece_starts)),
          .key_rows = ids_of(call.in(In::piece_keys)),
          .documents = ids_of(call.in(In::cu_seqlens)),
          .of = ids_of(call.in(In::document_pieces)),
          .key_capacity = call.in(In::keys).capacity()};
}

template <class T>
void context_attention_forward_kernel(const KernelCall& call) {
  using In = ContextAttentionIn;
  const auto& a = call.attributes_as<AttentionAttributes>();
  const TensorView& qkv = call.in(In::qkv);
  const TensorView& keys = call.in(In::keys);
  attention_forward<T>({.queries = {.shape = attention_shape(a),
                                    .cu_seqlens = ids_of(call.in(In::piece_bounds)),
                                    .capacity = qkv.capacity(),
                                    .q = {qkv.as<T>(), qkv.row_size()},
                                    .o = {call.out(AttentionOut::o).as<T>(), a.heads * a.head_dim},
                                    .lse = call.out(AttentionOut::lse).as<Accumulator<T>>(),
                                    .workspace = call.workspace},
                        .k = {keys.as<T>(), keys.row_size()},
                        .v = {keys.as<T>() + a.kv_heads * a.head_dim, keys.row_size()},
                        .pieces = pieces_of<In>(call)});
}

template <class T>
void context_attention_backward_kernel(const KernelCall& call) {
  using In = ContextAttentionBackwardIn;
  const auto& a = call.attributes_as<AttentionAttributes>();
  const TensorView& qkv = call.in(In::qkv);
  const TensorView& keys = call.in(In::keys);
  const std::int64_t values = a.kv_heads * a.head_dim;
  const std::int64_t stride = a.heads * a.head_dim;
  T* const grad_qkv = call.out(ContextAttentionBackwardOut::qkv).as<T>();
  T* const grad_keys = call.out(ContextAttentionBackwardOut::keys).as<T>();
  attention_backward<T>({.shape = attention_shape(a),
                         .cu_seqlens = ids_of(call.in(In::piece_bounds)),
                         .capacity = qkv.capacity(),
                         .q = {qkv.as<T>(), qkv.row_size()},
                         .k = {keys.as<T>(), keys.row_size()},
                         .v = {keys.as<T>() + values, keys.row_size()},
                         .o = {call.in(In::o).as<T>(), stride},
                         .grad_o = {call.in(In::grad_o).as<T>(), stride},
                         .lse = call.in(In::lse).as<Accumulator<T>>(),
                         .grad_q = {grad_qkv, qkv.row_size()},
                         .grad_k = {grad_keys, keys.row_size()},
                         .grad_v = {grad_keys + values, keys.row_size()},
                         .pieces = pieces_of<In>(call),
                         .workspace = call.workspace});
}

std::size_t context_attention_backward_workspace(InputTypes, std::span<const Type> outputs,
                                                 const Attributes& attributes) {
  const AttentionShape shape = attention_shape(attributes.as<AttentionAttributes>());
  const Type& keys = outputs[ContextAttentionBackwardOut::keys];
  std::size_t bytes = 0;
  for_floating(keys.dtype,
               [&]<class T>() { bytes = attention_backward_workspace_bytes<T>(shape, keys.rows(), thread_count()); });
  return bytes;
}

}  // namespace

void register_context_attention_cpu(KernelRegistry& registry) {
  registry.add("context_attention", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(ContextAttentionIn::qkv).dtype(),
                               [&]<class T>() { context_attention_forward_kernel<T>(call); });
                },
                attention_forward_workspace});
  registry.add("context_attention_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(ContextAttentionBackwardIn::qkv).dtype(),
                               [&]<class T>() { context_attention_backward_kernel<T>(call); });
                },
                context_attention_backward_workspace});
}

}  // namespace hone
