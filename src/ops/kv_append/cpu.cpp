#include <algorithm>

#include "ops/kv_append/kv_append.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void append(const KernelCall& call) {
  const TensorView& qkv = call.in(KvAppendIn::qkv);
  const TensorView& keys = call.out(KvAppendOut::k_cache);
  const auto& a = call.attributes_as<KvAppendAttributes>();
  const std::int64_t width = a.kv_heads * a.head_dim;
  const std::int64_t all_slots = keys.dim(0) * keys.dim(1);
  const auto* slots = call.in(KvAppendIn::slots).as<std::int32_t>();
  for (std::int64_t row = 0; row < qkv.rows(); ++row) {
    HONE_ASSERT(slots[row] >= 0 && slots[row] < all_slots, "slot ", slots[row], " at row ", row,
                " is out of range; the number of slots is ", all_slots);
  }
  const T* rows = qkv.as<T>();
  T* k_cache = keys.as<T>();
  T* v_cache = call.out(KvAppendOut::v_cache).as<T>();
  for_rows(qkv.rows(), 2 * width, [&](std::int64_t row) {
    const T* key = rows + row * qkv.row_size() + a.heads * a.head_dim;
    std::copy_n(key, width, k_cache + slots[row] * width);
    std::copy_n(key + width, width, v_cache + slots[row] * width);
  });
}

}  // namespace

void register_kv_append_cpu(KernelRegistry& registry) {
  registry.add("kv_append", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(KvAppendIn::qkv).dtype(), [&]<class T>() { append<T>(call); });
                },
                {}});
}

}  // namespace hone
