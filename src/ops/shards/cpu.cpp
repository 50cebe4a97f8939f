#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/shards/communication.h"

namespace hone {
namespace {

template <class T>
void add(std::byte* share, const std::byte* rows, std::int64_t elements) {
  T* to = reinterpret_cast<T*>(share);
  const T* from = reinterpret_cast<const T*>(rows);
  parallel_for(elements, 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(widen(to[i]) + widen(from[i]));
  });
}

void add_sums(const KernelCall& call) {
  wait_and_add(call, [&](std::size_t i, const std::byte* rows, std::size_t bytes) {
    for_floating(call.in(ShardsAddIn::whole(i)).dtype(),
                 [&]<class T>() { add<T>(call.out(i).data, rows, static_cast<std::int64_t>(bytes / sizeof(T))); });
  });
}

}  // namespace

void register_shards_cpu(KernelRegistry& registry) { register_shards(registry, DeviceKind::kCpu, add_sums); }

}  // namespace hone
