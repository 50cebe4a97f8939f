#include "ops/cuda_kernel.cuh"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// One block for each token. The rows of the tokens in use are the first ones, so that the other tokens clear the rest.
template <class T>
__global__ void __launch_bounds__(kThreads) dispatch_kernel(const T* x, const std::int32_t* position, RowCount tokens,
                                                            std::int64_t top_k, std::int64_t n, T* y) {
  const std::int64_t t = blockIdx.x;
  const bool is_used = t < tokens.get();
  for (std::int64_t j = t * top_k; j < (t + 1) * top_k; ++j) {
    T* to = y + (is_used ? position[j] : j) * n;
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) to[i] = is_used ? x[t * n + i] : narrowed<T>(0);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dispatch_backward_kernel(const T* dy, const std::int32_t* position, RowCount tokens, std::int64_t top_k,
                             std::int64_t n, T* dx) {
  const std::int64_t t = blockIdx.x;
  const bool is_used = t < tokens.get();
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    CudaAccumulator<T> sum = 0;
    for (std::int64_t j = t * top_k; is_used && j < (t + 1) * top_k; ++j) sum += widened(dy[position[j] * n + i]);
    dx[t * n + i] = narrowed<T>(sum);
  }
}

template <class T>
void forward(const KernelCall& call) {
  const TensorView& x = call.in(ExpertDispatchIn::x);
  const TensorView& position = call.in(ExpertDispatchIn::position);
  if (x.capacity() == 0) return;
  dispatch_kernel<T><<<static_cast<unsigned>(x.capacity()), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(x), position.as<std::int32_t>(), row_count(x), position.row_size(), x.row_size(),
      cuda_data<T>(call.out(0)));
  check_launch("expert_dispatch");
}

template <class T>
void backward(const KernelCall& call) {
  const TensorView& position = call.in(ExpertDispatchBackwardIn::position);
  const TensorView& dx = call.out(0);
  if (dx.capacity() == 0) return;
  dispatch_backward_kernel<T><<<static_cast<unsigned>(dx.capacity()), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(ExpertDispatchBackwardIn::dy)), position.as<std::int32_t>(), row_count(position),
      position.row_size(), dx.row_size(), cuda_data<T>(dx));
  check_launch("expert_dispatch_backward");
}

}  // namespace

void register_expert_dispatch_cuda(KernelRegistry& registry) {
  registry.add(
      "expert_dispatch", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
  registry.add(
      "expert_dispatch_backward", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { backward<T>(call); }); },
       {}});
}

}  // namespace hone
