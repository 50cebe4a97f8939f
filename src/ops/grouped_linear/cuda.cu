// wgmma_cuda.cu computes bf16 on Hopper. Otherwise simple kernels do, each of which reads an expert's matrix once for
// every row.
#include "ops/accumulated.h"
#include "ops/bisection.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/grouped_linear/wgmma_cuda.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kColumns = 8;  // columns of y that a warp computes, one after the other

// The expert whose rows include `row`, or `experts` if the row is not in use.
__device__ int expert_of(const std::int32_t* start, int experts, std::int64_t row) {
  return row < start[experts] ? static_cast<int>(last_up_to(row, start, experts)) : experts;
}

// blockIdx.x is the row; a warp sums over k, the lanes first.
template <class T>
__global__ void __launch_bounds__(kThreads)
    grouped_linear_kernel(const T* x, const T* weight, const std::int32_t* start, int experts, std::int64_t n,
                          std::int64_t k, T* y) {
  const std::int64_t row = blockIdx.x;
  const int expert = expert_of(start, experts, row);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t first = (std::int64_t{blockIdx.y} * kWarps + threadIdx.x / 32) * kColumns;
  for (std::int64_t column = first; column < first + kColumns && column < n; ++column) {
    CudaAccumulator<T> sum = 0;
    if (expert < experts) {
      const T* w = weight + (expert * n + column) * k;
      for (std::int64_t i = lane; i < k; i += 32) sum = fma(widened(x[row * k + i]), widened(w[i]), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row * n + column] = narrowed<T>(sum);
  }
}

// blockIdx.x is the row; a thread has one column of dx.
template <class T>
__global__ void __launch_bounds__(kThreads)
    grouped_input_kernel(const T* dy, const T* weight, const std::int32_t* start, int experts, std::int64_t n,
                         std::int64_t k, T* dx) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t column = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= k) return;
  const int expert = expert_of(start, experts, row);
  CudaAccumulator<T> sum = 0;
  if (expert < experts) {
    const T* w = weight + expert * n * k + column;
    for (std::int64_t i = 0; i < n; ++i) sum = fma(widened(dy[row * n + i]), widened(w[i * k]), sum);
  }
  dx[row * k + column] = narrowed<T>(sum);
}

// blockIdx.x is a row of dweight, of all experts; a thread has one column. Rows are added in ascending order.
// accumulated: null, or the flag that says whether dweight holds sums.
template <class T, class G>
__global__ void __launch_bounds__(kThreads)
    grouped_weight_kernel(const T* dy, const T* x, const std::int32_t* start, std::int64_t n, std::int64_t k,
                          const float* accumulated, G* dweight) {
  const std::int64_t expert = blockIdx.x / n;
  const std::int64_t height = blockIdx.x % n;
  const std::int64_t column = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const bool overwrites = accumulated != nullptr && *accumulated == 0;
  if (column >= k || (start[expert] == start[expert + 1] && !overwrites)) return;
  G* to = dweight + std::int64_t{blockIdx.x} * k + column;
  CudaAccumulator<T> sum = overwrites ? CudaAccumulator<T>(0) : widened(*to);
  for (std::int64_t row = start[expert]; row < start[expert + 1]; ++row) {
    sum = fma(widened(dy[row * n + height]), widened(x[row * k + column]), sum);
  }
  *to = narrowed<G>(sum);
}

int experts_of(const KernelCall& call) {
  return static_cast<int>(call.attributes_as<GroupedLinearAttributes>().experts);
}

dim3 grid_of(std::int64_t rows, std::int64_t columns, std::int64_t columns_of_block) {
  return {static_cast<unsigned>(rows), static_cast<unsigned>(ceil_div(columns, columns_of_block))};
}

template <class T>
void forward(const KernelCall& call) {
  const TensorView& x = call.in(GroupedLinearIn::x);
  const TensorView& y = call.out(0);
  if (y.elements() == 0) return;
  const GroupedOperands operands{x, call.in(GroupedLinearIn::weight), call.in(GroupedLinearIn::start), y,
                                 experts_of(call)};
  if (launch_grouped_forward(operands, stream_of(call))) return;
  grouped_linear_kernel<T><<<grid_of(y.capacity(), y.row_size(), kWarps * kColumns), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(x), cuda_data<T>(call.in(GroupedLinearIn::weight)),
      call.in(GroupedLinearIn::start).as<std::int32_t>(), experts_of(call), y.row_size(), x.row_size(),
      cuda_data<T>(y));
  check_launch("grouped_linear");
}

template <class T>
void input_gradient(const KernelCall& call) {
  const TensorView& dy = call.in(GroupedLinearInputGradientIn::dy);
  const TensorView& dx = call.out(0);
  if (dx.elements() == 0) return;
  const GroupedOperands operands{dy, call.in(GroupedLinearInputGradientIn::weight),
                                 call.in(GroupedLinearInputGradientIn::start), dx, experts_of(call)};
  if (launch_grouped_input(operands, stream_of(call))) return;
  grouped_input_kernel<T><<<grid_of(dx.capacity(), dx.row_size(), kThreads), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(dy), cuda_data<T>(call.in(GroupedLinearInputGradientIn::weight)),
      call.in(GroupedLinearInputGradientIn::start).as<std::int32_t>(), experts_of(call), dy.row_size(), dx.row_size(),
      cuda_data<T>(dx));
  check_launch("grouped_linear_input_gradient");
}

template <class T, class G>
void weight_gradient(const KernelCall& call) {
  const TensorView& dy = call.in(GroupedLinearWeightGradientIn::dy);
  const TensorView& x = call.in(GroupedLinearWeightGradientIn::x);
  const TensorView& dweight = call.out(0);
  if (dweight.elements() == 0) return;
  const float* accumulated = accumulated_flag(call, GroupedLinearWeightGradientIn::accumulated);
  const GroupedOperands operands{
      dy, x, call.in(GroupedLinearWeightGradientIn::start), dweight, experts_of(call), accumulated};
  if (launch_grouped_weight(operands, stream_of(call))) return;
  grouped_weight_kernel<T, G>
      <<<grid_of(dweight.capacity(), dweight.row_size(), kThreads), kThreads, 0, stream_of(call)>>>(
          cuda_data<T>(dy), cuda_data<T>(x), call.in(GroupedLinearWeightGradientIn::start).as<std::int32_t>(),
          dy.row_size(), x.row_size(), accumulated, cuda_data<G>(dweight));
  check_launch("grouped_linear_weight_gradient");
}

}  // namespace

void register_grouped_linear_cuda(KernelRegistry& registry) {
  registry.add(
      "grouped_linear", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
  registry.add("grouped_linear_input_gradient", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.out(0).dtype(), [&]<class T>() { input_gradient<T>(call); });
                },
                {}});
  registry.add("grouped_linear_weight_gradient", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  const DType dtype = call.in(GroupedLinearWeightGradientIn::x).dtype();
                  for_cuda_floating(dtype, [&]<class T>() {
                    call.out(0).dtype() == dtype ? weight_gradient<T, T>(call)
                                                 : weight_gradient<T, CudaAccumulator<T>>(call);
                  });
                },
                {}});
}

}  // namespace hone
