#include "ops/cuda_kernel.cuh"
#include "ops/ranks/communication.h"
#include "ops/ranks/ranks.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// y[row, i] += bias[i] for the rows in use; blockIdx.x is the row.
template <class T>
__global__ void __launch_bounds__(kThreads) bias_kernel(T* y, const T* bias, RowCount rows, std::int64_t n) {
  const std::int64_t row = blockIdx.x;
  if (row >= rows.get()) return;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    y[row * n + i] = narrowed<T>(widened(y[row * n + i]) + widened(bias[i]));
  }
}

template <class T, class More>
__global__ void __launch_bounds__(kThreads) add_kernel(T* sum, const More* more, std::int64_t elements) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < elements) sum[at] = narrowed<T>(widened(sum[at]) + widened(more[at]));
}

template <class T, class More>
void add_to_sum(const KernelCall& call, const std::byte* more) {
  const std::int64_t elements = call.out(0).elements();
  add_kernel<<<static_cast<unsigned>(ceil_div(elements, kThreads)), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.out(0)), reinterpret_cast<const More*>(more), elements);
  check_launch("ranks_accumulate");
}

// Copies a row of a rank's block; blockIdx.x is the row, blockIdx.y the rank.
__global__ void __launch_bounds__(kThreads)
    interleave_kernel(const std::uint32_t* all, std::int64_t rows, std::int64_t words, std::uint32_t* to) {
  const std::int64_t row = blockIdx.x;
  const std::uint32_t* from = all + (static_cast<std::int64_t>(blockIdx.y) * rows + row) * words;
  std::uint32_t* at = to + (row * gridDim.y + blockIdx.y) * words;
  for (std::int64_t i = threadIdx.x; i < words; i += kThreads) at[i] = from[i];
}

// The blocks [rows, n] of all ranks follow each other in the workspace. Rows past the count are zero on all ranks.
void gather(const KernelCall& call) {
  const TensorView& x = call.in(0);
  HONE_ASSERT(size_of(x.dtype()) % sizeof(std::uint32_t) == 0, "columns of ", name_of(x.dtype()), " are not gathered");
  if (x.elements() == 0) return;
  Collective& group = tensor_group();
  const std::size_t block = x.type->bytes();
  std::byte* const all = call.workspace.data();
  group.copy(all + static_cast<std::size_t>(group.rank()) * block, x.data, block);
  gather_blocks(all, block);
  const std::int64_t words = static_cast<std::int64_t>(block / sizeof(std::uint32_t)) / x.capacity();
  const dim3 grid(static_cast<unsigned>(x.capacity()), static_cast<unsigned>(group.size()));
  interleave_kernel<<<grid, kThreads, 0, stream_of(call)>>>(reinterpret_cast<const std::uint32_t*>(all), x.capacity(),
                                                            words, reinterpret_cast<std::uint32_t*>(call.out(0).data));
  check_launch("ranks_gather");
}

std::size_t bytes_of_output(InputTypes, std::span<const Type> outputs, const Attributes&) { return outputs[0].bytes(); }

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
  for_cuda_floating(call.out(0).dtype(), [&]<class T>() {
    dy.dtype() == call.out(0).dtype() ? add_to_sum<T, T>(call, sums) : add_to_sum<T, CudaAccumulator<T>>(call, sums);
  });
}

}  // namespace

void register_ranks_cuda(KernelRegistry& registry) {
  registry.add("ranks_sum", DeviceKind::kCuda, {sum, {}});
  registry.add("ranks_gather", DeviceKind::kCuda, {gather, bytes_of_output});
  registry.add("ranks_accumulate", DeviceKind::kCuda, {accumulate, summed_gradient_bytes});
}

}  // namespace hone
