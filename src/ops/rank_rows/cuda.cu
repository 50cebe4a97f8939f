#include "ops/clear_rows.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/rank_rows/blocks.h"
#include "ops/rank_rows/rank_rows.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// y[row, i] += bias[i] for this rank's rows, which begin at row `first` of the whole value; blockIdx.x is the row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rows_bias_kernel(T* y, const T* bias, RowCount whole, std::int64_t first, std::int64_t n) {
  const std::int64_t row = blockIdx.x;
  if (first + row >= whole.get()) return;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    y[row * n + i] = narrowed<T>(widened(y[row * n + i]) + widened(bias[i]));
  }
}

// Clears the rows of y that the whole value has no room for.
void clear_missing_rows(const KernelCall& call, const TensorView& y, const RowBlocks& blocks) {
  const std::size_t missing = y.type->bytes() - blocks.bytes();
  if (missing == 0) return;
  check_cuda(cudaMemsetAsync(y.data + blocks.bytes(), 0, missing, stream_of(call)), "cudaMemset");
}

// Rows past the count are zero on all ranks, and so are their sums.
void sum_rows(const KernelCall& call) {
  const TensorView& x = call.in(RankRowsSumIn::x);
  const TensorView& y = call.out(0);
  const RowBlocks blocks(x.capacity(), y);
  std::byte* const whole = call.workspace.data();
  blocks.copy(whole, x.data, x.type->bytes());
  blocks.sum(whole);
  blocks.copy(y.data, whole + blocks.begin(), blocks.bytes());
  clear_missing_rows(call, y, blocks);
  if (!call.in(RankRowsSumIn::bias) || y.elements() == 0) return;
  const std::int64_t first = tensor_group().rank() * y.capacity();
  for_cuda_floating(x.dtype(), [&]<class T>() {
    rows_bias_kernel<<<static_cast<unsigned>(y.capacity()), kThreads, 0, stream_of(call)>>>(
        cuda_data<T>(y), cuda_data<T>(call.in(RankRowsSumIn::bias)), row_count(x), first, y.row_size());
    check_launch("rank_rows_sum: bias");
  });
}

void gather_rows_of_ranks(const KernelCall& call) {
  const TensorView& y = call.out(0);
  const RowBlocks blocks(y.capacity(), call.in(0));
  blocks.copy(y.data + blocks.begin(), call.in(0).data, blocks.bytes());
  blocks.gather(y.data);
  clear_rows_past_count(call, y);
}

// Rows past the count are zero or finite, and are copied.
void take_rows(const KernelCall& call) {
  const TensorView& x = call.in(0);
  const TensorView& y = call.out(0);
  const RowBlocks blocks(x.capacity(), y);
  blocks.copy(y.data, x.data + blocks.begin(), blocks.bytes());
  clear_missing_rows(call, y, blocks);
}

}  // namespace

void register_rank_rows_cuda(KernelRegistry& registry) {
  registry.add("rank_rows_sum", DeviceKind::kCuda, {sum_rows, summed_bytes});
  registry.add("rank_rows_gather", DeviceKind::kCuda, {gather_rows_of_ranks, {}});
  registry.add("rank_rows_take", DeviceKind::kCuda, {take_rows, {}});
}

}  // namespace hone
