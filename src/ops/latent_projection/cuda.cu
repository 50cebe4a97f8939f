// Projections of each head by W_UK and W_UV. In bf16 a block multiplies 64 rows by 64 columns of a head on tensor
// cores, 64 elements of the sum at a time; otherwise a thread computes an element. Either sum is in ascending order,
// whatever the other rows are. A build for HIP has no tensor cores.
#ifndef HONE_HIP
#include "backend/cuda/mma.cuh"
#endif
#include "ops/cuda_kernel.cuh"
#include "ops/latent_projection/latent_projection.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 128;

// Products of all heads: y[row, head] = x[row, head] W[head], and what is copied. Strides in elements.
template <class T>
struct HeadProducts {
  const T* x;
  const T* weight;  // the first one of head 0
  T* y;
  RowCount rows;
  std::int32_t heads, depth, columns;
  std::int64_t x_stride, x_head;  // from one row, and from one head, to the next
  std::int64_t y_stride, y_head;
  std::int64_t weight_head, weight_stride;
  std::int32_t copied;  // elements after the first `depth` of x that follow the columns in y
};

// Copies what follows the products. All threads of the blocks that have the head's first columns call it.
template <class T>
__device__ void copy_rest(const HeadProducts<T>& of, int head, std::int64_t first, std::int64_t end) {
  for (std::int64_t i = threadIdx.x; i < (end - first) * of.copied; i += blockDim.x) {
    const std::int64_t row = first + i / of.copied;
    const std::int64_t at = i % of.copied;
    of.y[row * of.y_stride + head * of.y_head + of.columns + at] =
        of.x[row * of.x_stride + head * of.x_head + of.depth + at];
  }
}

#ifndef HONE_HIP
constexpr int kTileWidth = 64;

// y += rows [warp_row, warp_row + 16) times the weights, both 64 elements of the sum wide.
template <bool kTransposed>
__device__ void add_products(float (&y)[kTileWidth / 8][4], const SharedRows<kTileWidth>& rows,
                             const SharedRows<kTileWidth>& weights, int warp_row) {
#pragma unroll
  for (int k = 0; k < kTileWidth / 16; ++k) {
    std::uint32_t a[4];
    rows.load_a(a, warp_row, k);
#pragma unroll
    for (int n = 0; n < kTileWidth / 16; ++n) {
      std::uint32_t b[4];
      if constexpr (kTransposed) {
        weights.load_b(b, 16 * n, k);
      } else {
        weights.load_b_transposed(b, 16 * k, n);
      }
      multiply_add(y[2 * n], a, b[0], b[1]);
      multiply_add(y[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// blockIdx: 64 rows, 64 columns, head. kTransposed: the weight is [columns, depth], otherwise [depth, columns].
template <bool kTransposed>
__global__ void __launch_bounds__(kThreads) latent_projection_tile(HeadProducts<__nv_bfloat16> of) {
  __shared__ __align__(128) __nv_bfloat16 tiles[4][kTileWidth * kTileWidth];
  begin_dependent_kernel();
  const int head = static_cast<int>(blockIdx.z);
  const int column = static_cast<int>(blockIdx.y) * kTileWidth;
  const std::int64_t first = std::int64_t{blockIdx.x} * kTileWidth;
  const std::int64_t end = min(first + kTileWidth, of.rows.capacity);
  const __nv_bfloat16* x = of.x + head * of.x_head;
  const __nv_bfloat16* weight = of.weight + head * of.weight_head;
  if (column == 0 && of.copied > 0) copy_rest(of, head, first, end);
  const auto start = [&](int step) {
    const int depth = step * kTileWidth;
    const SharedRows<kTileWidth> rows{shared_address(tiles[step % 2])};
    const SharedRows<kTileWidth> weights{shared_address(tiles[2 + step % 2])};
    const int deep = min(of.depth - depth, kTileWidth);
    const int wide = min(of.columns - column, kTileWidth);
    rows.template copy<kTileWidth, kThreads>(
        deep / 8, x, [&](int row) { return first + row < end ? x + (first + row) * of.x_stride + depth : nullptr; });
    weights.template copy<kTileWidth, kThreads>((kTransposed ? deep : wide) / 8, weight, [&](int row) {
      if constexpr (kTransposed) {
        return row < wide ? weight + (column + row) * of.weight_stride + depth : nullptr;
      } else {
        return row < deep ? weight + (depth + row) * of.weight_stride + column : nullptr;
      }
    });
    copy_async_commit();
  };
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  float y[kTileWidth / 8][4] = {};
  const int steps = (of.depth + kTileWidth - 1) / kTileWidth;
  start(0);
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      start(step + 1);
      copy_async_wait<1>();
    } else {
      copy_async_wait<0>();
    }
    __syncthreads();
    add_products<kTransposed>(y, {shared_address(tiles[step % 2])}, {shared_address(tiles[2 + step % 2])}, warp_row);
    __syncthreads();
  }
  const SharedRows<kTileWidth> staged{shared_address(tiles[0])};
  const float factor[2] = {1.0f, 1.0f};
  store_rows(staged, warp_row, y, factor, min(of.columns - column, kTileWidth) / 8, [&](int row) {
    return first + row < end ? of.y + (first + row) * of.y_stride + head * of.y_head + column : nullptr;
  });
}
#endif

// blockIdx: row, columns, head.
template <bool kTransposed, class T>
__global__ void __launch_bounds__(kThreads) latent_projection_element(HeadProducts<T> of) {
  using A = CudaAccumulator<T>;
  begin_dependent_kernel();
  const int head = static_cast<int>(blockIdx.z);
  const std::int64_t row = blockIdx.x;
  if (blockIdx.y == 0 && of.copied > 0) copy_rest(of, head, row, row + 1);
  const int column = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (column >= of.columns) return;
  const T* x = of.x + row * of.x_stride + head * of.x_head;
  const T* weight = of.weight + head * of.weight_head;
  A sum = 0;
  for (int k = 0; k < of.depth; ++k) {
    const A factor =
        widened(kTransposed ? weight[column * of.weight_stride + k] : weight[k * of.weight_stride + column]);
    sum = std::fma(widened(x[k]), factor, sum);
  }
  of.y[row * of.y_stride + head * of.y_head + column] = narrowed<T>(sum);
}

template <bool kTransposed, class T>
void launch_products(const HeadProducts<T>& of, cudaStream_t stream) {
  if (of.rows.capacity == 0) return;
  const auto heads = static_cast<unsigned>(of.heads);
  const auto launch = [&](auto kernel, std::int64_t columns, std::int64_t rows) {
    launch_dependent({dim3(static_cast<unsigned>(ceil_div(of.rows.capacity, rows)),
                           static_cast<unsigned>(ceil_div(of.columns, columns)), heads),
                      kThreads},
                     stream, kernel, of);
    check_launch("latent_projection");
  };
#ifndef HONE_HIP
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const auto sizes = of.depth | of.columns | of.x_head | of.y_head | of.x_stride | of.y_stride | of.weight_stride;
    if (sizes % 8 == 0) return launch(latent_projection_tile<kTransposed>, kTileWidth, kTileWidth);
  }
#endif
  launch(latent_projection_element<kTransposed, T>, kThreads, 1);
}

template <class T>
void project_queries(const KernelCall& call) {
  const auto& a = call.attributes_as<LatentHeadsAttributes>();
  const TensorView& query = call.in(LatentProjectionIn::x);
  const TensorView& up = call.in(LatentProjectionIn::up);
  const std::int64_t rank = up.row_size();
  launch_products<false, T>({.x = cuda_data<T>(query),
                             .weight = cuda_data<T>(up),
                             .y = cuda_data<T>(call.out(0)),
                             .rows = row_count(query),
                             .heads = static_cast<std::int32_t>(a.heads),
                             .depth = static_cast<std::int32_t>(a.nope_dim),
                             .columns = static_cast<std::int32_t>(rank),
                             .x_stride = a.query_width(),
                             .x_head = a.head_dim(),
                             .y_stride = a.heads * (rank + a.rope_dim),
                             .y_head = rank + a.rope_dim,
                             .weight_head = (a.nope_dim + a.value_dim) * rank,
                             .weight_stride = rank,
                             .copied = static_cast<std::int32_t>(a.rope_dim)},
                            stream_of(call));
}

template <class T>
void project_values(const KernelCall& call) {
  const auto& a = call.attributes_as<LatentHeadsAttributes>();
  const TensorView& latents = call.in(LatentProjectionIn::x);
  const TensorView& up = call.in(LatentProjectionIn::up);
  const std::int64_t rank = up.row_size();
  launch_products<true, T>({.x = cuda_data<T>(latents),
                            .weight = cuda_data<T>(up) + a.nope_dim * rank,
                            .y = cuda_data<T>(call.out(0)),
                            .rows = row_count(latents),
                            .heads = static_cast<std::int32_t>(a.heads),
                            .depth = static_cast<std::int32_t>(rank),
                            .columns = static_cast<std::int32_t>(a.value_dim),
                            .x_stride = a.heads * rank,
                            .x_head = rank,
                            .y_stride = a.heads * a.value_dim,
                            .y_head = a.value_dim,
                            .weight_head = (a.nope_dim + a.value_dim) * rank,
                            .weight_stride = rank,
                            .copied = 0},
                           stream_of(call));
}

}  // namespace

void register_latent_projection_cuda(KernelRegistry& registry) {
  registry.add("latent_projection_queries", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.out(0).dtype(), [&]<class T>() { project_queries<T>(call); });
                },
                {}});
  registry.add("latent_projection_values", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.out(0).dtype(), [&]<class T>() { project_values<T>(call); });
                },
                {}});
}

}  // namespace hone
