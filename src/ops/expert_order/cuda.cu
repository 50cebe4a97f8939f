#include "ops/cuda_kernel.cuh"
#include "ops/expert_order/expert_order.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 1024;  // in one block

// Each thread has one expert or several: it counts their choices, then gives rows out in the order of the tokens.
__global__ void __launch_bounds__(kThreads)
    expert_order_kernel(const std::int32_t* expert, RowCount rows, std::int64_t top_k, int experts,
                        std::int32_t* position, std::int32_t* start) {
  const std::int64_t used = rows.get() * top_k;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) {
    std::int32_t count = 0;
    for (std::int64_t i = 0; i < used; ++i) count += expert[i] == e ? 1 : 0;
    start[e + 1] = count;
  }
  if (threadIdx.x == 0) start[0] = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int e = 0; e < experts; ++e) start[e + 1] += start[e];
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) {
    std::int32_t next = start[e];
    for (std::int64_t i = 0; i < used; ++i) {
      if (expert[i] == e) position[i] = next++;
    }
  }
  for (std::int64_t i = used + threadIdx.x; i < rows.capacity * top_k; i += kThreads) position[i] = 0;
}

void forward(const KernelCall& call) {
  const TensorView& expert = call.in(0);
  expert_order_kernel<<<1, kThreads, 0, stream_of(call)>>>(
      expert.as<std::int32_t>(), row_count(expert), expert.row_size(),
      static_cast<int>(call.attributes_as<ExpertOrderAttributes>().experts),
      call.out(ExpertOrderOut::position).as<std::int32_t>(), call.out(ExpertOrderOut::start).as<std::int32_t>());
  check_launch("expert_order");
}

}  // namespace

void register_expert_order_cuda(KernelRegistry& registry) {
  registry.add("expert_order", DeviceKind::kCuda, {forward, {}});
}

}  // namespace hone
