#include "ops/cuda_kernel.cuh"
#include "ops/expert_combine/expert_combine.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// One block for each token.
template <class T>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const T* y, const CudaAccumulator<T>* weight, const std::int32_t* position, RowCount tokens,
                   std::int64_t top_k, std::int64_t n, T* out) {
  const std::int64_t t = blockIdx.x;
  const bool is_used = t < tokens.get();
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    CudaAccumulator<T> sum = 0;
    for (std::int64_t j = t * top_k; is_used && j < (t + 1) * top_k; ++j) {
      sum += weight[j] * widened(y[position[j] * n + i]);
    }
    out[t * n + i] = narrowed<T>(sum);
  }
}

// One block for each token. The rows of the tokens in use are the first ones, so that the other tokens clear the rest.
template <class T>
__global__ void __launch_bounds__(kThreads)
    combine_backward_kernel(const T* dout, const T* y, const CudaAccumulator<T>* weight, const std::int32_t* position,
                            RowCount tokens, std::int64_t top_k, std::int64_t n, T* dy, CudaAccumulator<T>* dweight) {
  using A = CudaAccumulator<T>;
  __shared__ A sums[32];
  const std::int64_t t = blockIdx.x;
  const bool is_used = t < tokens.get();
  for (std::int64_t j = t * top_k; j < (t + 1) * top_k; ++j) {
    const std::int64_t first = (is_used ? position[j] : j) * n;
    A dot = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
      const A d = is_used ? widened(dout[t * n + i]) : A(0);
      if (is_used) dot += d * widened(y[first + i]);
      dy[first + i] = narrowed<T>(is_used ? weight[j] * d : A(0));
    }
    dot = block_sum(dot, sums);
    if (threadIdx.x == 0) dweight[j] = dot;
    __syncthreads();
  }
}

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& position = call.in(ExpertCombineIn::position);
  const TensorView& out = call.out(0);
  if (out.capacity() == 0) return;
  combine_kernel<T><<<static_cast<unsigned>(out.capacity()), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(ExpertCombineIn::y)), cuda_data<A>(call.in(ExpertCombineIn::weight)),
      position.as<std::int32_t>(), row_count(position), position.row_size(), out.row_size(), cuda_data<T>(out));
  check_launch("expert_combine");
}

template <class T>
void backward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& position = call.in(ExpertCombineBackwardIn::position);
  const TensorView& y = call.in(ExpertCombineBackwardIn::y);
  if (position.capacity() == 0) return;
  combine_backward_kernel<T><<<static_cast<unsigned>(position.capacity()), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(ExpertCombineBackwardIn::dout)), cuda_data<T>(y),
      cuda_data<A>(call.in(ExpertCombineBackwardIn::weight)), position.as<std::int32_t>(), row_count(position),
      position.row_size(), y.row_size(), cuda_data<T>(call.out(ExpertCombineBackwardOut::dy)),
      cuda_data<A>(call.out(ExpertCombineBackwardOut::dweight)));
  check_launch("expert_combine_backward");
}

}  // namespace

void register_expert_combine_cuda(KernelRegistry& registry) {
  registry.add(
      "expert_combine", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
  registry.add("expert_combine_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(ExpertCombineBackwardIn::y).dtype(), [&]<class T>() { backward<T>(call); });
                },
                {}});
}

}  // namespace hone
