#include "ops/cuda_kernel.cuh"
#include "ops/head_columns/head_columns.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // packs of a thread

// The columns that are copied: `columns` of each head, from column `from` of x to column `to` of y.
struct CopiedColumns {
  int heads, from_width, to_width;  // widths of the heads of x and y
  int from, to, columns;
};

// Copies columns of each head of x and fills the rest of y's heads, if they are longer, with zeros. blockIdx.x is the
// row, blockIdx.y a range of its packs.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) copy_columns_kernel(const T* x, RowCount rows, CopiedColumns p, T* y) {
  using Elements = Pack<T, kPack>;
  const std::int64_t row = blockIdx.x;
  const bool is_used = row < rows.get();
  x += row * p.heads * p.from_width;
  y += row * p.heads * p.to_width;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int at = static_cast<int>((blockIdx.y * kPacks + i) * kThreads + threadIdx.x) * kPack;
    if (at >= p.heads * p.to_width) return;
    const int head = at / p.to_width;
    const int column = at - head * p.to_width - p.to;  // among those that are copied
    const bool is_copied = is_used && column >= 0 && column < p.columns;
    const T* source = x + head * p.from_width + p.from + column;
    *reinterpret_cast<Elements*>(y + at) = is_copied ? *reinterpret_cast<const Elements*>(source) : Elements{};
  }
}

template <class T>
void copy_columns(const KernelCall& call, std::int64_t from, std::int64_t to) {
  const auto& a = call.attributes_as<HeadColumnsAttributes>();
  const TensorView& x = call.in(0);
  const TensorView& y = call.out(0);
  if (y.capacity() == 0) return;
  const CopiedColumns copied{.heads = static_cast<int>(a.heads),
                             .from_width = static_cast<int>(x.row_size() / a.heads),
                             .to_width = static_cast<int>(y.row_size() / a.heads),
                             .from = static_cast<int>(from),
                             .to = static_cast<int>(to),
                             .columns = static_cast<int>(a.columns)};
  // A power of two divides all numbers if and only if it divides their bitwise or.
  with_pack<T>(a.head_dim | a.columns | a.first, [&]<int kPack>() {
    const std::int64_t stretches = ceil_div(y.row_size(), std::int64_t{kThreads} * kPacks * kPack);
    const dim3 grid(static_cast<unsigned>(y.capacity()), static_cast<unsigned>(stretches));
    copy_columns_kernel<T, kPack>
        <<<grid, kThreads, 0, stream_of(call)>>>(cuda_data<T>(x), row_count(y), copied, cuda_data<T>(y));
  });
  check_launch("head_columns");
}

}  // namespace

void register_head_columns_cuda(KernelRegistry& registry) {
  registry.add("head_columns", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  const auto& a = call.attributes_as<HeadColumnsAttributes>();
                  for_cuda_floating(call.in(0).dtype(), [&]<class T>() { copy_columns<T>(call, a.first, 0); });
                },
                {}});
  registry.add("head_columns_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  const auto& a = call.attributes_as<HeadColumnsAttributes>();
                  for_cuda_floating(call.in(0).dtype(), [&]<class T>() { copy_columns<T>(call, 0, a.first); });
                },
                {}});
}

}  // namespace hone
