#include <algorithm>

#include "ops/latent_cache/latent_cache.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void append_latent(const KernelCall& call) {
  const TensorView& latent = call.in(LatentAppendIn::latent);
  const TensorView& rope_key = call.in(LatentAppendIn::rope_key);
  const TensorView& cache = call.out(0);
  const std::int64_t all_slots = cache.dim(0) * cache.dim(1);
  const std::int64_t rank = latent.row_size();
  const std::int64_t rope = rope_key.row_size();
  const auto* slots = call.in(LatentAppendIn::slots).as<std::int32_t>();
  for (std::int64_t row = 0; row < latent.rows(); ++row) {
    HONE_ASSERT(slots[row] >= 0 && slots[row] < all_slots, "slot ", slots[row], " at row ", row,
                " is out of range; the number of slots is ", all_slots);
  }
  T* to = cache.as<T>();
  for_rows(latent.rows(), rank + rope, [&](std::int64_t row) {
    T* slot = std::copy_n(latent.as<T>() + row * rank, rank, to + slots[row] * (rank + rope));
    std::copy_n(rope_key.as<T>() + row * rope, rope, slot);
  });
}

template <class T>
void gather_latent(const KernelCall& call) {
  const TensorView& cache = call.in(LatentRowsIn::cache);
  const TensorView& latent = call.out(LatentRowsOut::latent);
  const TensorView& rope_key = call.out(LatentRowsOut::rope_key);
  const std::int64_t size = cache.dim(1);
  const std::int64_t rank = latent.row_size();
  const std::int64_t rope = rope_key.row_size();
  const auto* pages = call.in(LatentRowsIn::pages).as<std::int32_t>();
  for (std::int64_t i = 0; i < call.in(LatentRowsIn::pages).rows(); ++i) {
    HONE_ASSERT(pages[i] >= 0 && pages[i] < cache.dim(0), "page ", pages[i], " at index ", i,
                " is out of range; the number of pages is ", cache.dim(0));
  }
  for_rows(latent.rows(), rank + rope, [&](std::int64_t row) {
    const T* from = cache.as<T>() + (pages[row / size] * size + row % size) * (rank + rope);
    std::copy_n(from, rank, latent.as<T>() + row * rank);
    std::copy_n(from + rank, rope, rope_key.as<T>() + row * rope);
  });
  zero_tail(latent);
  zero_tail(rope_key);
}

template <class T>
void expand_pages(const KernelCall& call) {
  const LatentHeadsAttributes& a = call.attributes_as<LatentPagesAttributes>().heads;
  const TensorView& kvs = call.in(LatentPagesIn::kv);
  const T* rope_keys = call.in(LatentPagesIn::rope_key).as<T>();
  const TensorView& keys = call.out(LatentPagesOut::keys);
  const TensorView& values = call.out(LatentPagesOut::values);
  for_rows(kvs.rows(), 2 * a.query_width(), [&](std::int64_t row) {
    const T* kv = kvs.as<T>() + row * a.kv_width();  // [heads, nope_dim + value_dim]
    T* k = keys.as<T>() + row * a.query_width();     // [heads, head_dim]
    T* v = values.as<T>() + row * a.query_width();   // [heads, head_dim]
    for (std::int64_t head = 0; head < a.heads; ++head) {
      k = std::copy_n(kv, a.nope_dim, k);
      k = std::copy_n(rope_keys + row * a.rope_dim, a.rope_dim, k);
      v = std::copy_n(kv + a.nope_dim, a.value_dim, v);
      v = std::fill_n(v, a.head_dim() - a.value_dim, T(0));
      kv += a.nope_dim + a.value_dim;
    }
  });
  zero_tail(keys);
  zero_tail(values);
}

}  // namespace

void register_latent_cache_cpu(KernelRegistry& registry) {
  const auto add = [&](const char* name, auto run) { registry.add(name, DeviceKind::kCpu, {run, {}}); };
  add("latent_cache_append", [](const KernelCall& call) {
    for_floating(call.in(LatentAppendIn::latent).dtype(), [&]<class T>() { append_latent<T>(call); });
  });
  add("latent_cache_rows",
      [](const KernelCall& call) { for_floating(call.out(0).dtype(), [&]<class T>() { gather_latent<T>(call); }); });
  add("latent_cache_pages",
      [](const KernelCall& call) { for_floating(call.out(0).dtype(), [&]<class T>() { expand_pages<T>(call); }); });
}

}  // namespace hone
