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

void add_sums(const KernelCall& call) {
  wait_and_add(call, [&](std::size_t i, const std::byte* rows, std::size_t bytes) {
    for_cuda_floating(call.in(ShardsAddIn::whole(i)).dtype(), [&]<class T>() {
      const auto elements = static_cast<std::int64_t>(bytes / sizeof(T));
      const std::int64_t blocks = ceil_div(elements, kThreads * kPacks * kPackSize<T>);
      add_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(
          cuda_data<T>(call.out(i)), reinterpret_cast<const T*>(rows), elements);
      check_launch("shards_add");
    });
  });
}

}  // namespace

void register_shards_cuda(KernelRegistry& registry) { register_shards(registry, DeviceKind::kCuda, add_sums); }

}  // namespace hone
