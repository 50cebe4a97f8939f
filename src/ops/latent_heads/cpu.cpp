#include <algorithm>

#include "ops/latent_heads/latent_heads.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void latent_heads_forward(const KernelCall& call) {
  const auto& a = call.attributes_as<LatentHeadsAttributes>();
  const TensorView& qkv = call.out(0);
  const std::int64_t width = a.query_width();
  const T* queries = call.in(LatentHeadsIn::query).as<T>();
  const T* kvs = call.in(LatentHeadsIn::kv).as<T>();
  const T* rope_keys = call.in(LatentHeadsIn::rope_key).as<T>();
  T* qkvs = qkv.as<T>();
  for_rows(qkv.rows(), 3 * width, [&](std::int64_t row) {
    const T* kv = kvs + row * a.kv_width();            // [heads, nope_dim + value_dim]
    const T* rope_key = rope_keys + row * a.rope_dim;  // [rope_dim]
    T* q = qkvs + row * 3 * width;
    T* k = q + width;  // [heads, head_dim]
    T* v = k + width;  // [heads, head_dim]
    std::copy_n(queries + row * width, width, q);
    for (std::int64_t head = 0; head < a.heads; ++head) {
      k = std::copy_n(kv, a.nope_dim, k);
      k = std::copy_n(rope_key, a.rope_dim, k);
      v = std::copy_n(kv + a.nope_dim, a.value_dim, v);
      v = std::fill_n(v, a.head_dim() - a.value_dim, T(0));
      kv += a.nope_dim + a.value_dim;
    }
  });
  zero_tail(qkv);
}

template <class T>
void latent_heads_backward(const KernelCall& call) {
  using A = Accumulator<T>;
  const auto& a = call.attributes_as<LatentHeadsAttributes>();
  const TensorView& dqkv = call.in(0);
  const std::int64_t width = a.query_width();
  const T* dqkvs = dqkv.as<T>();
  T* dqueries = call.out(LatentHeadsBackwardOut::dquery).as<T>();
  T* dkvs = call.out(LatentHeadsBackwardOut::dkv).as<T>();
  T* drope_keys = call.out(LatentHeadsBackwardOut::drope_key).as<T>();
  for_rows(dqkv.rows(), 3 * width, [&](std::int64_t row) {
    const T* dq = dqkvs + row * 3 * width;
    const T* dk = dq + width;  // [heads, head_dim]
    const T* dv = dk + width;  // [heads, head_dim]
    T* dkv = dkvs + row * a.kv_width();
    std::copy_n(dq, width, dqueries + row * width);
    for (std::int64_t head = 0; head < a.heads; ++head) {
      dkv = std::copy_n(dk + head * a.head_dim(), a.nope_dim, dkv);
      dkv = std::copy_n(dv + head * a.head_dim(), a.value_dim, dkv);
    }
    for (std::int64_t i = 0; i < a.rope_dim; ++i) {
      A sum = 0;
      for (std::int64_t head = 0; head < a.heads; ++head) sum += widen(dk[head * a.head_dim() + a.nope_dim + i]);
      drope_keys[row * a.rope_dim + i] = static_cast<T>(sum);
    }
  });
  for (const TensorView& output : call.outputs) zero_tail(output);
}

}  // namespace

void register_latent_heads_cpu(KernelRegistry& registry) {
  registry.add("latent_heads", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.out(0).dtype(), [&]<class T>() { latent_heads_forward<T>(call); });
                },
                {}});
  registry.add("latent_heads_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(0).dtype(), [&]<class T>() { latent_heads_backward<T>(call); });
                },
                {}});
}

}  // namespace hone
