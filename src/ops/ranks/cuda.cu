#include "backend/collective.h"
#include "ops/cuda_kernel.cuh"
#include "ops/ranks/ranks.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

Collective& tensor_group() {
  HONE_ASSERT(current_tensor_collective() != nullptr, "a divided program runs without a tensor group");
  return *current_tensor_collective();
}

// y[row, i] += bias[i] for the rows in use; blockIdx.x is the row.
template <class T>
__global__ void __launch_bounds__(kThreads) bias_kernel(T* y, const T* bias, RowCount rows, std::int64_t n) {
  const std::int64_t row = blockIdx.x;
  if (row >= rows.get()) return;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    y[row * n + i] = narrowed<T>(widened(y[row * n + i]) + widened(bias[i]));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(T* sum, const T* more, std::int64_t elements) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < elements) sum[at] = narrowed<T>(widened(sum[at]) + widened(more[at]));
}

// Rows past the count are zero on all ranks, and so are their sums.
void sum(const KernelCall& call) {
  const TensorView& x = call.in(RanksSumIn::x);
  const TensorView& y = call.out(0);
  Collective& group = tensor_group();
  group.copy(y.data, x.data, x.type->bytes());
  group.all_reduce(y.data, x.dtype(), static_cast<std::size_t>(x.elements()));
  if (!call.in(RanksSumIn::bias) || y.elements() == 0) return;
  for_cuda_floating(x.dtype(), [&]<class T>() {
    bias_kernel<<<static_cast<unsigned>(y.capacity()), kThreads, 0, stream_of(call)>>>(
        cuda_data<T>(y), cuda_data<T>(call.in(RanksSumIn::bias)), row_count(y), y.row_size());
    check_launch("ranks_sum: bias");
  });
}

void accumulate(const KernelCall& call) {
  const TensorView& dy = call.in(RanksAccumulateIn::dy);
  Collective& group = tensor_group();
  std::byte* const sums = call.workspace.data();
  group.copy(sums, dy.data, dy.type->bytes());
  group.all_reduce(sums, dy.dtype(), static_cast<std::size_t>(dy.elements()));
  for_cuda_floating(dy.dtype(), [&]<class T>() {
    add_kernel<<<static_cast<unsigned>(ceil_div(dy.elements(), kThreads)), kThreads, 0, stream_of(call)>>>(
        cuda_data<T>(call.out(0)), reinterpret_cast<const T*>(sums), dy.elements());
    check_launch("ranks_accumulate");
  });
}

}  // namespace

void register_ranks_cuda(KernelRegistry& registry) {
  registry.add("ranks_sum", DeviceKind::kCuda, {sum, {}});
  registry.add(
      "ranks_accumulate", DeviceKind::kCuda,
      {accumulate, [](InputTypes, std::span<const Type> outputs, const Attributes&) { return outputs[0].bytes(); }});
}

}  // namespace hone
