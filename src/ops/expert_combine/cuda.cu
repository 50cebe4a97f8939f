#include "ops/clear_rows.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/expert_combine/expert_combine.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// One block for each token.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const T* y, const CudaAccumulator<T>* weight, const std::int32_t* position, RowCount tokens,
                   std::int64_t top_k, std::int64_t n, T* out) {
  begin_dependent_kernel();
  const std::int64_t t = blockIdx.x;
  const bool is_used = t < tokens.get();
  for (std::int64_t i = std::int64_t{threadIdx.x} * kPack; i < n; i += kThreads * kPack) {
    CudaAccumulator<T> sum[kPack]{};
    for (std::int64_t j = t * top_k; is_used && j < (t + 1) * top_k; ++j) {
      if (position[j] < 0) continue;
      const CudaAccumulator<T> factor = weight[j];
      Pack<T, kPack> values = load_streamed<T, kPack>(y + position[j] * n + i);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] += factor * widened(values[k]);
    }
    T rounded[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) rounded[k] = narrowed<T>(sum[k]);
    store_values(out + t * n + i, rounded);
  }
}

// One block for each choice of a token; those with a position below 0 have no row. The rows of the tokens in use are
// the first ones, so that the other tokens clear the rest, unless the rows are those of some experts only.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    combine_backward_kernel(const T* dout, const T* y, const CudaAccumulator<T>* weight, const std::int32_t* position,
                            RowCount tokens, std::int64_t top_k, std::int64_t n, bool clears, T* dy,
                            CudaAccumulator<T>* dweight) {
  using A = CudaAccumulator<T>;
  __shared__ A sums[32];
  begin_dependent_kernel();
  const std::int64_t j = blockIdx.x;
  const std::int64_t t = j / top_k;
  const bool is_used = t < tokens.get();
  if (is_used ? position[j] < 0 : !clears) {
    if (threadIdx.x == 0) dweight[j] = 0;
    return;
  }
  const std::int64_t row = (is_used ? position[j] : j) * n;
  const A factor = weight[j];
  A dot = 0;
  for (std::int64_t i = std::int64_t{threadIdx.x} * kPack; i < n; i += kThreads * kPack) {
    T rounded[kPack]{};
    if (is_used) {
      Pack<T, kPack> d = load_kept<T, kPack>(dout + t * n + i);
      Pack<T, kPack> values = load_streamed<T, kPack>(y + row + i);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        dot += widened(d[k]) * widened(values[k]);
        rounded[k] = narrowed<T>(factor * widened(d[k]));
      }
    }
    store_values(dy + row + i, rounded);
  }
  dot = block_sum(dot, sums);
  if (threadIdx.x == 0) dweight[j] = dot;
}

template <class T>
void forward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& position = call.in(ExpertCombineIn::position);
  const TensorView& out = call.out(0);
  if (out.capacity() == 0) return;
  with_pack<T>(out.row_size(), [&]<int kPack>() {
    launch_dependent({static_cast<unsigned>(out.capacity()), kThreads}, stream_of(call), combine_kernel<T, kPack>,
                     cuda_data<T>(call.in(ExpertCombineIn::y)), cuda_data<A>(call.in(ExpertCombineIn::weight)),
                     position.as<std::int32_t>(), row_count(position), position.row_size(), out.row_size(),
                     cuda_data<T>(out));
  });
  check_launch("expert_combine");
}

template <class T>
void backward(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& position = call.in(ExpertCombineBackwardIn::position);
  const TensorView& y = call.in(ExpertCombineBackwardIn::y);
  if (position.elements() == 0) return;
  const bool is_whole = y.type->count() == position.type->count();
  if (!is_whole) clear_rows_past_count(call, call.out(ExpertCombineBackwardOut::dy));
  with_pack<T>(y.row_size(), [&]<int kPack>() {
    launch_dependent({static_cast<unsigned>(position.elements()), kThreads}, stream_of(call),
                     combine_backward_kernel<T, kPack>, cuda_data<T>(call.in(ExpertCombineBackwardIn::dout)),
                     cuda_data<T>(y), cuda_data<A>(call.in(ExpertCombineBackwardIn::weight)),
                     position.as<std::int32_t>(), row_count(position), position.row_size(), y.row_size(), is_whole,
                     cuda_data<T>(call.out(ExpertCombineBackwardOut::dy)),
                     cuda_data<A>(call.out(ExpertCombineBackwardOut::dweight)));
  });
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
