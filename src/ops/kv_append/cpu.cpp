#include "ops/kv_append/cpu_pages.h"
#include "ops/kv_append/kv_append.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void append(const KernelCall& call) {
  const TensorView& qkv = call.in(KvAppendIn::qkv);
  const auto& a = call.attributes_as<KvAppendAttributes>();
  const CpuPages<T> pages(call.out(KvAppendOut::k_cache), call.out(KvAppendOut::v_cache),
                          output_or_null(call, KvAppendOut::k_scales), output_or_null(call, KvAppendOut::v_scales),
                          call.in(KvAppendIn::slots), qkv.rows(), a);
  const T* rows = qkv.as<T>();
  for_rows(qkv.rows(), 2 * a.kv_heads * a.head_dim,
           [&](std::int64_t row) { pages.append(row, rows + row * qkv.row_size() + a.heads * a.head_dim); });
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
