// A block computes one row, so its bits depend on no other row. The order of its sums differs from that of a GEMM.
#include "core/error.h"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"
#include "ops/slot_lora/slot_lora.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

template <class T>
struct SlotLoraArgs {
  const T* from;
  const T* x;
  const std::int32_t* slots;
  const T* down;
  const T* up;
  T* y;
  RowCount rows;
  std::int64_t n, k, q, count;
};

template <class T>
__global__ void __launch_bounds__(kThreads) slot_lora_kernel(const SlotLoraArgs<T> args) {
  using A = CudaAccumulator<T>;
  extern __shared__ double shared[];  // [q] numbers of type A: h, rounded to T
  A* h = reinterpret_cast<A*>(shared);
  const std::int64_t row = blockIdx.x;
  const bool used = row < args.rows.get();
  const std::int64_t slot = used ? args.slots[row] : -1;
  const bool adapted = slot >= 0 && slot < args.count;
  if (adapted) {
    const T* x = args.x + row * args.k;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (std::int64_t j = static_cast<std::int64_t>(threadIdx.x) / kWarp; j < args.q; j += kThreads / kWarp) {
      const T* down = args.down + (slot * args.q + j) * args.k;
      A sum = 0;
      for (std::int64_t i = lane; i < args.k; i += kWarp) sum += widened(x[i]) * widened(down[i]);
      for (int other = kWarp / 2; other > 0; other /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
      if (lane == 0) h[j] = widened(narrowed<T>(sum));
    }
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < args.n; i += kThreads) {
    A sum = used ? widened(args.from[row * args.n + i]) : A(0);
    if (adapted) {
      const T* up = args.up + (slot * args.n + i) * args.q;
      A product = 0;
      for (std::int64_t j = 0; j < args.q; ++j) product += h[j] * widened(up[j]);
      sum += product;
    }
    args.y[row * args.n + i] = narrowed<T>(sum);
  }
}

template <class T>
void forward(const KernelCall& call) {
  const TensorView& y = call.out(0);
  if (y.elements() == 0) return;
  const std::int64_t n = y.row_size();
  const std::int64_t q = call.in(SlotLoraIn::up).row_size();
  const SlotLoraArgs<T> args{cuda_data<T>(call.in(SlotLoraIn::y)),
                             cuda_data<T>(call.in(SlotLoraIn::x)),
                             cuda_data<std::int32_t>(call.in(SlotLoraIn::slots)),
                             cuda_data<T>(call.in(SlotLoraIn::down)),
                             cuda_data<T>(call.in(SlotLoraIn::up)),
                             cuda_data<T>(y),
                             row_count(y),
                             n,
                             call.in(SlotLoraIn::x).row_size(),
                             q,
                             call.in(SlotLoraIn::up).capacity() / n};
  const std::size_t shared_bytes = static_cast<std::size_t>(q) * sizeof(CudaAccumulator<T>);
  HONE_ASSERT(shared_bytes <= 48 * 1024, "the adapters of one layer have ", q, " rows together");
  slot_lora_kernel<T><<<static_cast<unsigned>(y.capacity()), kThreads, shared_bytes, stream_of(call)>>>(args);
  check_launch("slot_lora");
}

}  // namespace

void register_slot_lora_cuda(KernelRegistry& registry) {
  registry.add(
      "slot_lora", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.out(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
}

}  // namespace hone
