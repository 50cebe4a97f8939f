#include "ops/cuda_kernel.cuh"
#include "ops/guard/guard.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlock = 8192;  // elements of a block

// Sets `bad` to 1 if an element is not finite. The race is harmless: every thread that writes writes 1.
template <class T>
__global__ void __launch_bounds__(kThreads)
    guard_kernel(const T* values, RowCount rows, std::int64_t row_size, std::int32_t* bad) {
  const std::int64_t used = rows.get() * row_size;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kBlock;
  const std::int64_t end = begin + kBlock < used ? begin + kBlock : used;
  bool finite = true;
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) finite = isfinite(widened(values[i])) && finite;
  if (!finite) *bad = 1;
}

template <class T>
void forward(const KernelCall& call) {
  const TensorView& values = call.in(GuardIn::values);
  const std::int64_t blocks = ceil_div(values.elements(), kBlock);
  if (blocks == 0) return;
  guard_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(values), row_count(values), values.row_size(), cuda_data<std::int32_t>(call.out(0)));
  check_launch("guard");
}

}  // namespace

void register_guard_cuda(KernelRegistry& registry) {
  registry.add("guard", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(GuardIn::values).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
}

}  // namespace hone
