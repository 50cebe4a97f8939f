#include <algorithm>

#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"
#include "ops/shards/communication.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // packs of a thread

// Adds rows to a share. Rows begin at a multiple of the pack's size, because shares are cut at multiples of 256
// elements.
template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(T* share, const T* rows, std::int64_t elements) {
  constexpr int kPack = kPackSize<T>;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kPacks * kThreads + threadIdx.x) * kPack;
#pragma unroll
  for (int i = 0; i < kPacks; ++i, at += kThreads * kPack) {
    if (at + kPack <= elements) {
      auto* to = reinterpret_cast<Pack<T, kPack>*>(share + at);
      Pack<T, kPack> sum = *to;
      Pack<T, kPack> more = *reinterpret_cast<const Pack<T, kPack>*>(rows + at);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] = narrowed<T>(widened(sum[k]) + widened(more[k]));
      *to = sum;
    } else {
      for (std::int64_t j = at; j < elements; ++j) share[j] = narrowed<T>(widened(share[j]) + widened(rows[j]));
    }
  }
}

void wait_and_add(const KernelCall& call) {
  Collective& job = job_of_shares();
  job.wait(slot_of_shares(call));
  const std::vector<RowCuts> tensors = row_cuts(call.attributes_as<ShardsAttributes>());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ByteRange mine = parts_of(tensors[i]).at(static_cast<std::size_t>(job.rank()));
    if (mine.begin == mine.end) continue;
    for_cuda_floating(tensors[i].whole.dtype, [&]<class T>() {
      const auto elements = static_cast<std::int64_t>((mine.end - mine.begin) / sizeof(T));
      const std::int64_t blocks = ceil_div(elements, kThreads * kPacks * kPackSize<T>);
      add_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(
          cuda_data<T>(call.out(i)), reinterpret_cast<const T*>(call.in(ShardsAddIn::whole(i)).data + mine.begin),
          elements);
      check_launch("shards_add");
    });
  }
}

}  // namespace

void register_shards_cuda(KernelRegistry& registry) {
  registry.add("shards_gather", DeviceKind::kCuda, {start_gather, {}});
  registry.add("shards_gather_wait", DeviceKind::kCuda, {wait_for_work, {}});
  registry.add("shards_sum", DeviceKind::kCuda, {start_sum, {}});
  registry.add("shards_sum_whole", DeviceKind::kCuda, {start_sum_whole, {}});
  registry.add("shards_sum_whole_wait", DeviceKind::kCuda, {wait_for_work, {}});
  registry.add("shards_add", DeviceKind::kCuda, {wait_and_add, {}});
}

}  // namespace hone
