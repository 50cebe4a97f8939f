#include "ops/attention/cpu_operands.h"
#include "ops/registry.h"

namespace hone {
namespace {

// Views of the query, key and value heads in rows that hold all three.
template <class T>
struct Packed {
  HeadRows<T> q, k, v;

  Packed(T* rows, const AttentionAttributes& a) {
    const std::int64_t stride = (a.heads + 2 * a.kv_heads) * a.head_dim;
    q = {rows, stride};
    k = {rows + a.heads * a.head_dim, stride};
    v = {rows + (a.heads + a.kv_heads) * a.head_dim, stride};
  }
};

template <class T>
void attention_forward_kernel(const KernelCall& call) {
  const auto& a = call.attributes_as<AttentionAttributes>();
  const Packed<const T> qkv(call.in(AttentionIn::qkv).as<T>(), a);
  attention_forward<T>({.queries = {.shape = attention_shape(a),
                                    .cu_seqlens = ids_of(call.in(AttentionIn::cu_seqlens)),
                                    .capacity = call.in(AttentionIn::qkv).capacity(),
                                    .q = qkv.q,
                                    .o = {call.out(AttentionOut::o).as<T>(), a.heads * a.head_dim},
                                    .lse = call.out(AttentionOut::lse).as<Accumulator<T>>(),
                                    .workspace = call.workspace},
                        .k = qkv.k,
                        .v = qkv.v});
}

template <class T>
void attention_backward_kernel(const KernelCall& call) {
  const auto& a = call.attributes_as<AttentionAttributes>();
  const Packed<const T> qkv(call.in(AttentionBackwardIn::qkv).as<T>(), a);
  const Packed<T> gradient(call.out(0).as<T>(), a);
  const std::int64_t stride = a.heads * a.head_dim;
  attention_backward<T>({.shape = attention_shape(a),
                         .cu_seqlens = ids_of(call.in(AttentionBackwardIn::cu_seqlens)),
                         .capacity = call.in(AttentionBackwardIn::qkv).capacity(),
                         .q = qkv.q,
                         .k = qkv.k,
                         .v = qkv.v,
                         .o = {call.in(AttentionBackwardIn::o).as<T>(), stride},
                         .grad_o = {call.in(AttentionBackwardIn::grad_o).as<T>(), stride},
                         .lse = call.in(AttentionBackwardIn::lse).as<Accumulator<T>>(),
                         .grad_q = gradient.q,
                         .grad_k = gradient.k,
                         .grad_v = gradient.v,
                         .workspace = call.workspace});
}

std::size_t attention_backward_workspace(InputTypes inputs, std::span<const Type> outputs,
                                         const Attributes& attributes) {
  const AttentionShape shape = attention_shape(attributes.as<AttentionAttributes>());
  std::size_t bytes = 0;
  for_floating(required(inputs, AttentionBackwardIn::grad_o, "attention").dtype, [&]<class T>() {
    bytes = attention_backward_workspace_bytes<T>(shape, outputs[0].rows(), thread_count());
  });
  return bytes;
}

}  // namespace

void register_attention_cpu(KernelRegistry& registry) {
  registry.add("attention", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(AttentionIn::qkv).dtype(),
                               [&]<class T>() { attention_forward_kernel<T>(call); });
                },
                attention_forward_workspace});
  registry.add("attention_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(AttentionBackwardIn::grad_o).dtype(),
                               [&]<class T>() { attention_backward_kernel<T>(call); });
                },
                attention_backward_workspace});
}

}  // namespace hone
