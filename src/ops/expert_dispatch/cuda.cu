#include "ops/clear_rows.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// One block for each token, whose row is read once; choices with a position below 0 have none. The rows of the tokens
// in use are the first ones, so that the other tokens clear the rest, unless the rows are those of some experts only.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) dispatch_kernel(const T* x, const std::int32_t* position, RowCount tokens,
                                                            std::int64_t top_k, std::int64_t n, bool clears, T* y) {
  begin_dependent_kernel();
  const std::int64_t t = blockIdx.x;
  const bool is_used = t < tokens.get();
  if (!is_used && !clears) return;
  for (std::int64_t i = std::int64_t{threadIdx.x} * kPack; i < n; i += kThreads * kPack) {
    Pack<T, kPack> values = load_streamed<T, kPack>(x + t * n + i);
    if (!is_used) values = {};
    for (std::int64_t j = t * top_k; j < (t + 1) * top_k; ++j) {
      const std::int64_t row = is_used ? position[j] : j;
      if (row >= 0) store_values(y + row * n + i, values.values);
    }
  }
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    dispatch_backward_kernel(const T* dy, const std::int32_t* position, RowCount tokens, std::int64_t top_k,
                             std::int64_t n, T* dx) {
  begin_dependent_kernel();
  const std::int64_t t = blockIdx.x;
  const bool is_used = t < tokens.get();
  for (std::int64_t i = std::int64_t{threadIdx.x} * kPack; i < n; i += kThreads * kPack) {
    CudaAccumulator<T> sum[kPack]{};
    for (std::int64_t j = t * top_k; is_used && j < (t + 1) * top_k; ++j) {
      if (position[j] < 0) continue;
      Pack<T, kPack> values = load_streamed<T, kPack>(dy + position[j] * n + i);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] += widened(values[k]);
    }
    T rounded[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) rounded[k] = narrowed<T>(sum[k]);
    store_values(dx + t * n + i, rounded);
  }
}

template <class T>
void forward(const KernelCall& call) {
  const TensorView& x = call.in(ExpertDispatchIn::x);
  const TensorView& position = call.in(ExpertDispatchIn::position);
  if (x.capacity() == 0) return;
  const TensorView& y = call.out(0);
  const bool is_whole = y.type->count() == x.type->count();
  if (!is_whole) clear_rows_past_count(call, y);
  with_pack<T>(x.row_size(), [&]<int kPack>() {
    launch_dependent({static_cast<unsigned>(x.capacity()), kThreads}, stream_of(call), dispatch_kernel<T, kPack>,
                     cuda_data<T>(x), position.as<std::int32_t>(), row_count(x), position.row_size(), x.row_size(),
                     is_whole, cuda_data<T>(y));
  });
  check_launch("expert_dispatch");
}

template <class T>
void backward(const KernelCall& call) {
  const TensorView& position = call.in(ExpertDispatchBackwardIn::position);
  const TensorView& dx = call.out(0);
  if (dx.capacity() == 0) return;
  with_pack<T>(dx.row_size(), [&]<int kPack>() {
    launch_dependent({static_cast<unsigned>(dx.capacity()), kThreads}, stream_of(call),
                     dispatch_backward_kernel<T, kPack>, cuda_data<T>(call.in(ExpertDispatchBackwardIn::dy)),
                     position.as<std::int32_t>(), row_count(position), position.row_size(), dx.row_size(),
                     cuda_data<T>(dx));
  });
  check_launch("expert_dispatch_backward");
}

}  // namespace

void register_expert_dispatch_cuda(KernelRegistry& registry) {
  for (const char* name : {"expert_dispatch", "expert_dispatch_part"}) {
    registry.add(
        name, DeviceKind::kCuda,
        {[](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { forward<T>(call); }); },
         {}});
  }
  registry.add(
      "expert_dispatch_backward", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { backward<T>(call); }); },
       {}});
}

}  // namespace hone
