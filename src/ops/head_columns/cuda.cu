#include "ops/cuda_kernel.cuh"
#include "ops/head_columns/head_columns.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // packs of a thread

// Copies the first `columns` of each head of x and fills the rest of y's heads, if they are longer, with zeros.
// blockIdx.x is the row, blockIdx.y a range of its packs.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    copy_columns_kernel(const T* x, RowCount rows, int heads, int from_width, int to_width, int columns, T* y) {
  using Elements = Pack<T, kPack>;
  const std::int64_t row = blockIdx.x;
  const bool is_used = row < rows.get();
  x += row * heads * from_width;
  y += row * heads * to_width;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int at = static_cast<int>((blockIdx.y * kPacks + i) * kThreads + threadIdx.x) * kPack;
    if (at >= heads * to_width) return;
    const int head = at / to_width;
    const int column = at - head * to_width;
    *reinterpret_cast<Elements*>(y + at) =
        is_used && column < columns ? *reinterpret_cast<const Elements*>(x + head * from_width + column) : Elements{};
  }
}

template <class T>
void copy_columns(const KernelCall& call) {
  const auto& a = call.attributes_as<HeadColumnsAttributes>();
  const TensorView& x = call.in(0);
  const TensorView& y = call.out(0);
  if (y.capacity() == 0) return;
  // A power of two divides both numbers if and only if it divides their bitwise or.
  with_pack<T>(a.head_dim | a.columns, [&]<int kPack>() {
    const std::int64_t stretches = ceil_div(y.row_size(), std::int64_t{kThreads} * kPacks * kPack);
    const dim3 grid(static_cast<unsigned>(y.capacity()), static_cast<unsigned>(stretches));
    copy_columns_kernel<T, kPack><<<grid, kThreads, 0, stream_of(call)>>>(
        cuda_data<T>(x), row_count(y), static_cast<int>(a.heads), static_cast<int>(x.row_size() / a.heads),
        static_cast<int>(y.row_size() / a.heads), static_cast<int>(a.columns), cuda_data<T>(y));
  });
  check_launch("head_columns");
}

}  // namespace

void register_head_columns_cuda(KernelRegistry& registry) {
  const Kernel kernel{
      [](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { copy_columns<T>(call); }); },
      {}};
  registry.add("head_columns", DeviceKind::kCuda, kernel);
  registry.add("head_columns_backward", DeviceKind::kCuda, kernel);
}

}  // namespace hone
