#include <algorithm>

#include "ops/registry.h"
#include "ops/rope/row.h"
#include "ops/rope_append/rope_append.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void rotate_and_append(const KernelCall& call) {
  const TensorView& qkv = call.in(RopeAppendIn::qkv);
  const TensorView& keys = call.out(RopeAppendOut::k_cache);
  const auto& a = call.attributes_as<KvAppendAttributes>();
  const RopeAttributes rotation = rope_of(a);
  const std::int64_t n = qkv.row_size();
  const std::int64_t width = a.kv_heads * a.head_dim;
  const std::int64_t all_slots = keys.dim(0) * keys.dim(1);
  const auto* slots = call.in(RopeAppendIn::slots).as<std::int32_t>();
  for (std::int64_t row = 0; row < qkv.rows(); ++row) {
    HONE_ASSERT(slots[row] >= 0 && slots[row] < all_slots, "slot ", slots[row], " at row ", row,
                " is out of range; the number of slots is ", all_slots);
  }
  const T* xs = qkv.as<T>();
  const auto* table = call.in(RopeAppendIn::table).as<float>();
  T* ys = call.out(RopeAppendOut::qkv).as<T>();
  T* k_cache = keys.as<T>();
  T* v_cache = call.out(RopeAppendOut::v_cache).as<T>();
  for_rows(qkv.rows(), n, [&](std::int64_t row) {
    T* y = ys + row * n;
    rotate_row(xs + row * n, table + row * a.head_dim, n, rotation, y);
    const T* key = y + a.heads * a.head_dim;
    std::copy_n(key, width, k_cache + slots[row] * width);
    std::copy_n(key + width, width, v_cache + slots[row] * width);
  });
  zero_tail(call.out(RopeAppendOut::qkv));
}

}  // namespace

void register_rope_append_cpu(KernelRegistry& registry) {
  registry.add("rope_append", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(RopeAppendIn::qkv).dtype(), [&]<class T>() { rotate_and_append<T>(call); });
                },
                {}});
}

}  // namespace hone
