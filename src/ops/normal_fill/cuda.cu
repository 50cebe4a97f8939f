#include "core/random.h"
#include "ops/cuda_kernel.cuh"
#include "ops/normal_fill/normal_fill.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// RandomStream::normal of element i, from random words 2i and 2i + 1 of the stream.
__device__ float normal(std::uint32_t first, std::uint32_t second) {
  const double radius = sqrt(-2.0 * log(static_cast<double>(uniform_from(first))));
  return static_cast<float>(radius * cospi(2.0 * static_cast<double>(uniform_from(second))));
}

// A thread draws two neighbouring elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    normal_kernel(T* values, std::uint64_t key, float deviation, std::int64_t count) {
  const std::int64_t pair = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t i = 2 * pair;
  if (i >= count) return;
  const auto words = philox(key, {static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32), 0, 0});
  values[i] = narrowed<T>(deviation * normal(words[0], words[1]));
  if (i + 1 < count) values[i + 1] = narrowed<T>(deviation * normal(words[2], words[3]));
}

template <class T>
void forward(const KernelCall& call) {
  const auto& a = call.attributes_as<NormalFillAttributes>();
  if (a.count == 0) return;
  normal_kernel<T><<<static_cast<unsigned>(ceil_div(a.count, 2 * kThreads)), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.out(0)) + a.first, static_cast<std::uint64_t>(a.key), static_cast<float>(a.deviation), a.count);
  check_launch("normal_fill");
}

}  // namespace

void register_normal_fill_cuda(KernelRegistry& registry) {
  registry.add(
      "normal_fill", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
}

}  // namespace hone
