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

void wait_and_add(const KernelCall& call) {
  Collective& job = job_of_shares();
  job.wait(slot_of_shares(call));
  const std::vector<RowCuts> tensors = row_cuts(call.attributes_as<ShardsAttributes>());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ByteRange mine = parts_of(tensors[i]).at(static_cast<std::size_t>(job.rank()));
    for_floating(tensors[i].whole.dtype, [&]<class T>() {
      add<T>(call.out(i).data, call.in(ShardsAddIn::whole(i)).data + mine.begin,
             static_cast<std::int64_t>((mine.end - mine.begin) / sizeof(T)));
    });
  }
}

}  // namespace

void register_shards_cpu(KernelRegistry& registry) {
  registry.add("shards_gather", DeviceKind::kCpu, {start_gather, {}});
  registry.add("shards_gather_wait", DeviceKind::kCpu, {wait_for_work, {}});
  registry.add("shards_sum", DeviceKind::kCpu, {start_sum, {}});
  registry.add("shards_sum_whole", DeviceKind::kCpu, {start_sum_whole, {}});
  registry.add("shards_sum_whole_wait", DeviceKind::kCpu, {wait_for_work, {}});
  registry.add("shards_add", DeviceKind::kCpu, {wait_and_add, {}});
}

}  // namespace hone
