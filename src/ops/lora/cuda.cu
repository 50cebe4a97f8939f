// Adapter operations on a GPU. All rows of the capacity are multiplied, because only the device knows how many are in
// use; rows past the count are finite in x and exactly zero in dy.
#include <algorithm>

#include "ops/cuda_kernel.cuh"
#include "ops/linear/products.h"
#include "ops/lora/lora.h"
#include "ops/ranks/communication.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 8;  // columns of a thread in scale_kernel and product_kernel

LoraParts parts_of(const KernelCall& call) { return lora_parts_from_text(call.attributes_as<LoraAttributes>().parts); }

unsigned blocks_for(std::int64_t elements) { return static_cast<unsigned>(ceil_div(elements, kThreads)); }

__device__ std::int64_t element() { return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; }

template <class T>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(const T* b, T* up, LoraParts parts, std::int64_t rank, std::int64_t width, std::int64_t elements,
                  CudaAccumulator<T> scale) {
  const std::int64_t at = element();
  if (at >= elements) return;
  const std::int64_t row = at / width;
  const std::int64_t column = at % width;
  const bool own = column / rank == parts.of(row);
  up[at] = own ? narrowed<T>(widened(b[row * rank + column % rank]) * scale) : narrowed<T>(0);
}

template <class T>
void spread(const KernelCall& call) {
  const TensorView& up = call.out(0);
  if (up.elements() == 0) return;
  const auto scale = static_cast<CudaAccumulator<T>>(call.attributes_as<LoraAttributes>().scale);
  spread_kernel<T><<<blocks_for(up.elements()), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(0)), cuda_data<T>(up), parts_of(call), call.in(0).row_size(), up.row_size(), up.elements(),
      scale);
  check_launch("lora_spread");
}

template <class D, class G>
__global__ void __launch_bounds__(kThreads)
    collect_kernel(const D* dup, G* db, LoraParts parts, std::int64_t rank, std::int64_t width, std::int64_t elements,
                   CudaAccumulator<D> scale) {
  const std::int64_t at = element();
  if (at >= elements) return;
  const std::int64_t row = at / rank;
  const int part = parts.of(row);
  if (part < 0) return;
  db[at] = narrowed<G>(widened(db[at]) + widened(dup[row * width + part * rank + at % rank]) * scale);
}

template <class D, class G>
void collect(const KernelCall& call) {
  const TensorView& db = call.out(0);
  if (db.elements() == 0) return;
  collect_kernel<D, G><<<blocks_for(db.elements()), kThreads, 0, stream_of(call)>>>(
      cuda_data<D>(call.in(LoraCollectIn::dup)), cuda_data<G>(db), parts_of(call), db.row_size(),
      call.in(LoraCollectIn::dup).row_size(), db.elements(),
      static_cast<CudaAccumulator<D>>(call.attributes_as<LoraAttributes>().scale));
  check_launch("lora_collect");
}

template <class D>
void collect(const KernelCall& call) {
  if (call.out(0).dtype() == DType::kBf16) {
    if constexpr (!std::is_same_v<D, double>) collect<D, __nv_bfloat16>(call);
  } else {
    collect<D, CudaAccumulator<D>>(call);
  }
}

void adapted(const KernelCall& call) {
  CudaDevice& device = cuda_device_of(call);
  GemmArgs args =
      linear_product(*call.in(LoraLinearIn::x).type, *call.in(LoraLinearIn::weight).type, *call.out(0).type);
  args.a = call.in(LoraLinearIn::x).data;
  args.b = call.in(LoraLinearIn::weight).data;
  args.c = call.out(0).data;
  args.workspace = call.workspace.first(kCublasWorkspace);
  if (call.in(LoraLinearIn::bias)) {
    args.bias = call.in(LoraLinearIn::bias).data;
    args.bias_type = call.in(LoraLinearIn::bias).dtype();
  }
  device.cublas().gemm(args, device.stream());
  GemmArgs more = linear_product(*call.in(LoraLinearIn::h).type, *call.in(LoraLinearIn::up).type, *call.out(0).type);
  more.a = call.in(LoraLinearIn::h).data;
  more.b = call.in(LoraLinearIn::up).data;
  more.c = call.out(0).data;
  more.accumulate = true;
  more.workspace = args.workspace;
  device.cublas().gemm(more, device.stream());
}

std::size_t adapted_workspace(InputTypes, std::span<const Type>, const Attributes&) { return kCublasWorkspace; }

// L2 norm of a row of weight + delta; a block has one row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    norm_kernel(const T* weight, const T* delta, std::int64_t n, CudaAccumulator<T>* norms) {
  using A = CudaAccumulator<T>;
  __shared__ A shared[32];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * n;
  A mine = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const A value = widened(weight[begin + i]) + widened(delta[begin + i]);
    mine += value * value;
  }
  const A total = block_sum(mine, shared);
  if (threadIdx.x != 0) return;
  const A root = sqrt(total);
  norms[blockIdx.x] = root > A(1e-12) ? root : A(1e-12);
}

template <class T>
void norm(const KernelCall& call) {
  const std::int64_t rows = call.out(0).elements();
  if (rows == 0) return;
  norm_kernel<T><<<static_cast<unsigned>(rows), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(LoraDoraNormIn::weight)), cuda_data<T>(call.in(LoraDoraNormIn::delta)),
      call.in(LoraDoraNormIn::weight).row_size(), cuda_data<CudaAccumulator<T>>(call.out(0)));
  check_launch("lora_dora_norm");
}

template <class A>
__global__ void __launch_bounds__(kThreads) square_kernel(A* values, std::int64_t count) {
  if (const std::int64_t at = element(); at < count) values[at] *= values[at];
}

template <class A>
__global__ void __launch_bounds__(kThreads) root_kernel(A* values, std::int64_t count) {
  if (const std::int64_t at = element(); at < count) values[at] = sqrt(values[at]);
}

template <class T>
void norm_part(const KernelCall& call) {
  using A = CudaAccumulator<T>;
  norm<T>(call);
  const std::int64_t rows = call.out(0).elements();
  if (rows == 0) return;
  A* const norms = cuda_data<A>(call.out(0));
  square_kernel<A><<<blocks_for(rows), kThreads, 0, stream_of(call)>>>(norms, rows);
  check_launch("lora_dora_norm_part: squares");
  tensor_group().all_reduce(call.out(0).data, call.out(0).dtype(), static_cast<std::size_t>(rows));
  root_kernel<A><<<blocks_for(rows), kThreads, 0, stream_of(call)>>>(norms, rows);
  check_launch("lora_dora_norm_part");
}

// The first of a thread's kColumns elements of one row, which are kThreads columns apart.
struct Place {
  std::int64_t row, column;
};
__device__ Place place_of(std::int64_t tiles) {
  return {blockIdx.x / tiles, blockIdx.x % tiles * (kThreads * kColumns) + threadIdx.x};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const T* z, const T* magnitude, const CudaAccumulator<T>* norms, const T* bias, T* y, RowCount rows,
                 std::int64_t n, std::int64_t tiles, LoraParts parts) {
  using A = CudaAccumulator<T>;
  const Place place = place_of(tiles);
  const bool used = place.row < rows.get();
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const std::int64_t column = place.column + k * kThreads;
    if (column >= n) return;
    const std::int64_t at = place.row * n + column;
    const A factor = parts.of(column) >= 0 ? widened(magnitude[column]) / norms[column] : A(1);
    const A offset = bias != nullptr ? widened(bias[column]) : A(0);
    y[at] = used ? narrowed<T>(widened(z[at]) * factor + offset) : narrowed<T>(0);
  }
}

template <class T>
void scale(const KernelCall& call) {
  const TensorView& z = call.in(LoraDoraScaleIn::z);
  if (z.elements() == 0) return;
  const std::int64_t tiles = ceil_div(z.row_size(), kThreads * kColumns);
  scale_kernel<T><<<static_cast<unsigned>(z.capacity() * tiles), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(z), cuda_data<T>(call.in(LoraDoraScaleIn::magnitude)),
      cuda_data<CudaAccumulator<T>>(call.in(LoraDoraScaleIn::norm)), cuda_data<T>(call.in(LoraDoraScaleIn::bias)),
      cuda_data<T>(call.out(0)), row_count(z), z.row_size(), tiles, parts_of(call));
  check_launch("lora_dora_scale");
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    product_kernel(const T* dy, const T* z, const CudaAccumulator<T>* norms, T* to, RowCount rows, std::int64_t n,
                   std::int64_t tiles, LoraParts parts) {
  const Place place = place_of(tiles);
  const bool used = place.row < rows.get();
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const std::int64_t column = place.column + k * kThreads;
    if (column >= n) return;
    const std::int64_t at = place.row * n + column;
    const bool counts = used && parts.of(column) >= 0;
    to[at] = counts ? narrowed<T>(widened(dy[at]) * widened(z[at]) / norms[column]) : narrowed<T>(0);
  }
}

template <class T>
void product(const KernelCall& call) {
  const TensorView& dy = call.in(LoraDoraProductIn::dy);
  if (dy.elements() == 0) return;
  const std::int64_t tiles = ceil_div(dy.row_size(), kThreads * kColumns);
  product_kernel<T><<<static_cast<unsigned>(dy.capacity() * tiles), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(dy), cuda_data<T>(call.in(LoraDoraProductIn::z)),
      cuda_data<CudaAccumulator<T>>(call.in(LoraDoraProductIn::norm)), cuda_data<T>(call.out(0)), row_count(dy),
      dy.row_size(), tiles, parts_of(call));
  check_launch("lora_dora_product");
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    bias_kernel(const T* trained, const T* frozen, T* to, LoraParts parts, std::int64_t elements) {
  const std::int64_t at = element();
  if (at < elements) to[at] = parts.of(at) >= 0 ? trained[at] : frozen[at];
}

template <class T>
void choose_bias(const KernelCall& call) {
  const TensorView& to = call.out(0);
  if (to.elements() == 0) return;
  bias_kernel<T><<<blocks_for(to.elements()), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(LoraBiasIn::trained)), cuda_data<T>(call.in(LoraBiasIn::frozen)), cuda_data<T>(to),
      parts_of(call), to.elements());
  check_launch("lora_bias");
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    bias_collect_kernel(const T* dbias, CudaAccumulator<T>* sum, LoraParts parts, std::int64_t elements) {
  const std::int64_t at = element();
  if (at < elements && parts.of(at) >= 0) sum[at] += widened(dbias[at]);
}

template <class T>
void collect_bias(const KernelCall& call) {
  const TensorView& sum = call.out(0);
  if (sum.elements() == 0) return;
  bias_collect_kernel<T><<<blocks_for(sum.elements()), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(LoraBiasCollectIn::dbias)), cuda_data<CudaAccumulator<T>>(sum), parts_of(call),
      sum.elements());
  check_launch("lora_bias_collect");
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    join_kernel(const T* a, const T* b, T* to, RowCount rows, std::int64_t left, std::int64_t right) {
  const std::int64_t width = left + right;
  const std::int64_t at = element();
  if (at >= rows.capacity * width) return;
  const std::int64_t row = at / width;
  const std::int64_t column = at % width;
  if (row >= rows.get()) {
    to[at] = narrowed<T>(0);
  } else {
    to[at] = column < left ? a[row * left + column] : b[row * right + column - left];
  }
}

template <class T>
void join(const KernelCall& call) {
  const TensorView& to = call.out(0);
  if (to.elements() == 0) return;
  join_kernel<T><<<blocks_for(to.elements()), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(LoraJoinIn::a)), cuda_data<T>(call.in(LoraJoinIn::b)), cuda_data<T>(to), row_count(to),
      call.in(LoraJoinIn::a).row_size(), call.in(LoraJoinIn::b).row_size());
  check_launch("lora_join");
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    take_kernel(const T* from, T* to, RowCount rows, std::int64_t width, std::int64_t first, std::int64_t count) {
  const std::int64_t at = element();
  if (at >= rows.capacity * count) return;
  const std::int64_t row = at / count;
  to[at] = row < rows.get() ? from[row * width + first + at % count] : narrowed<T>(0);
}

template <class T>
void take(const KernelCall& call) {
  const TensorView& to = call.out(0);
  if (to.elements() == 0) return;
  take_kernel<T><<<blocks_for(to.elements()), kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(call.in(0)), cuda_data<T>(to), row_count(to), call.in(0).row_size(),
      call.attributes_as<LoraColumns>().first, to.row_size());
  check_launch("lora_columns");
}

}  // namespace

void register_lora_cuda(KernelRegistry& registry) {
  const auto add = [&](std::string_view op, auto run) { registry.add(op, DeviceKind::kCuda, {std::move(run), {}}); };
  add("lora_spread",
      [](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { spread<T>(call); }); });
  add("lora_collect", [](const KernelCall& call) {
    for_cuda_floating(call.in(LoraCollectIn::dup).dtype(), [&]<class T>() { collect<T>(call); });
  });
  registry.add("lora_linear", DeviceKind::kCuda, {adapted, adapted_workspace});
  add("lora_dora_norm", [](const KernelCall& call) {
    for_cuda_floating(call.in(LoraDoraNormIn::weight).dtype(), [&]<class T>() { norm<T>(call); });
  });
  add("lora_dora_norm_part", [](const KernelCall& call) {
    for_cuda_floating(call.in(LoraDoraNormIn::weight).dtype(), [&]<class T>() { norm_part<T>(call); });
  });
  add("lora_dora_scale", [](const KernelCall& call) {
    for_cuda_floating(call.in(LoraDoraScaleIn::z).dtype(), [&]<class T>() { scale<T>(call); });
  });
  add("lora_dora_product", [](const KernelCall& call) {
    for_cuda_floating(call.in(LoraDoraProductIn::dy).dtype(), [&]<class T>() { product<T>(call); });
  });
  add("lora_bias", [](const KernelCall& call) {
    for_cuda_floating(call.in(LoraBiasIn::trained).dtype(), [&]<class T>() { choose_bias<T>(call); });
  });
  add("lora_bias_collect", [](const KernelCall& call) {
    for_cuda_floating(call.in(LoraBiasCollectIn::dbias).dtype(), [&]<class T>() { collect_bias<T>(call); });
  });
  add("lora_join", [](const KernelCall& call) {
    for_cuda_floating(call.in(LoraJoinIn::a).dtype(), [&]<class T>() { join<T>(call); });
  });
  add("lora_columns",
      [](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { take<T>(call); }); });
}

}  // namespace hone
