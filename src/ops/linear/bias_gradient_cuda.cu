#include <algorithm>

#include "ops/column_sum.cuh"
#include "ops/linear/linear.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kWarps = 8;
constexpr std::int64_t kSlices = 64;  // at most; the number fixes the order of the sum

// Sums 32 packs of columns over the rows of one slice, which are the rows with row / 8 % slices == slice. Warp w adds
// the rows with row % 8 == w; then the sums of the warps are added in order.
template <class T, int kPack>
__global__ void __launch_bounds__(32 * kWarps)
    bias_gradient_kernel(const T* dy, RowCount rows, std::int64_t n, int tiles, CudaAccumulator<T>* partials) {
  using Sums = Pack<CudaAccumulator<T>, kPack>;
  __shared__ Sums shared[kWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t slice = blockIdx.x / static_cast<unsigned>(tiles);
  const std::int64_t tile = blockIdx.x % static_cast<unsigned>(tiles);
  const std::int64_t slices = gridDim.x / static_cast<unsigned>(tiles);
  const std::int64_t at = (tile * 32 + lane) * kPack;
  const std::int64_t used = rows.get();
  Sums sum{};
  if (at < n) {
#pragma unroll 4
    for (std::int64_t row = slice * kWarps + warp; row < used; row += slices * kWarps) {
      const auto values = *reinterpret_cast<const Pack<T, kPack>*>(dy + row * n + at);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] += widened(values[k]);
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || at >= n) return;
  for (int other = 1; other < kWarps; ++other) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum[k] += shared[other][lane][k];
  }
  *reinterpret_cast<Sums*>(partials + slice * n + at) = sum;
}

std::int64_t slices_of(std::int64_t rows) { return std::min(kSlices, ceil_div(rows, kWarps)); }

template <class T>
void bias_gradient(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  const TensorView& dy = call.in(LinearBiasGradientIn::dy);
  const std::int64_t n = dy.row_size();
  if (dy.elements() == 0) return;
  const std::int64_t slices = slices_of(dy.capacity());
  auto* partials = reinterpret_cast<A*>(call.workspace.data());
  with_pack<T>(n, [&]<int kPack>() {
    const std::int64_t tiles = ceil_div(n, 32 * kPack);
    bias_gradient_kernel<T, kPack><<<static_cast<unsigned>(slices * tiles), 32 * kWarps, 0, stream_of(call)>>>(
        cuda_data<T>(dy), row_count(dy), n, static_cast<int>(tiles), partials);
  });
  check_launch("linear_bias_gradient");
  add_column_sums(call, partials, slices, n, cuda_data<A>(call.out(0)));
}

std::size_t workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  return static_cast<std::size_t>(slices_of(inputs[LinearBiasGradientIn::dy]->rows())) * outputs[0].bytes();
}

}  // namespace

void register_linear_bias_gradient_cuda(KernelRegistry& registry) {
  registry.add("linear_bias_gradient", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(LinearBiasGradientIn::dy).dtype(),
                                    [&]<class T>() { bias_gradient<T>(call); });
                },
                workspace});
}

}  // namespace hone
