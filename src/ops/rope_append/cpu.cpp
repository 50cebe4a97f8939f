#include "ops/kv_append/cpu_pages.h"
#include "ops/registry.h"
#include "ops/rope/row.h"
#include "ops/rope_append/rope_append.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void rotate_and_append(const KernelCall& call) {
  const TensorView& qkv = call.in(RopeAppendIn::qkv);
  const auto& a = call.attributes_as<KvAppendAttributes>();
  const RopeAttributes rotation = rope_of(a);
  const std::int64_t n = qkv.row_size();
  const CpuPages<T> pages(call.out(RopeAppendOut::k_cache), call.out(RopeAppendOut::v_cache),
                          output_or_null(call, RopeAppendOut::k_scales), output_or_null(call, RopeAppendOut::v_scales),
                          call.in(RopeAppendIn::slots), qkv.rows(), a);
  const T* xs = qkv.as<T>();
  const auto* table = call.in(RopeAppendIn::table).as<float>();
  T* ys = call.out(RopeAppendOut::qkv).as<T>();
  for_rows(qkv.rows(), n, [&](std::int64_t row) {
    T* y = ys + row * n;
    rotate_row(xs + row * n, table + row * a.head_dim, n, rotation, y);
    pages.append(row, y + a.heads * a.head_dim);
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
