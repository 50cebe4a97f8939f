#include "ops/cuda_kernel.cuh"
#include "ops/dropout/dropout.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kHeld = 2;  // blocks of kDropoutBlock elements that a thread has in flight

// Operands of the kernel.
template <class T>
struct Dropping {
  using A = CudaAccumulator<T>;
  const T* x;
  const std::int32_t* draw;
  T* y;
  RowCount rows;
  std::int64_t row_size;
  std::uint32_t site, threshold;
  A scale;
};

// A thread has blocks `first` and first + kThreads of elements.
template <class T>
__global__ void __launch_bounds__(kThreads) dropout_kernel(Dropping<T> p) {
  constexpr int kBlock = static_cast<int>(kDropoutBlock);
  using Elements = Pack<T, kBlock>;
  const std::int64_t capacity = p.rows.capacity * p.row_size;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads * kHeld + threadIdx.x;
  Elements held[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t at = (first + h * kThreads) * kBlock;
    if (at + kBlock <= capacity) {
      held[h] = *reinterpret_cast<const Elements*>(p.x + at);
    } else {
#pragma unroll
      for (int i = 0; i < kBlock; ++i) held[h][i] = at + i < capacity ? p.x[at + i] : T(0);
    }
  }
  std::array<std::uint32_t, kDropoutDraw> draw;
#pragma unroll
  for (int i = 0; i < kDropoutDraw; ++i) draw[i] = static_cast<std::uint32_t>(p.draw[i]);
  const std::int64_t used = p.rows.get() * p.row_size;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t block = first + h * kThreads;
    const std::int64_t at = block * kBlock;
    const auto bits = dropout_bits(draw, p.site, static_cast<std::uint32_t>(block));
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      const bool stays = dropout_number(bits, i) >= p.threshold && at + i < used;
      held[h][i] = stays ? narrowed<T>(widened(held[h][i]) * p.scale) : T(0);
    }
    if (at + kBlock <= capacity) {
      *reinterpret_cast<Elements*>(p.y + at) = held[h];
    } else {
#pragma unroll
      for (int i = 0; i < kBlock; ++i) {
        if (at + i < capacity) p.y[at + i] = held[h][i];
      }
    }
  }
}

template <class T>
void forward(const KernelCall& call) {
  const TensorView& x = call.in(DropoutIn::x);
  const auto& a = call.attributes_as<DropoutAttributes>();
  const std::uint32_t threshold = dropout_threshold(a.probability);
  const std::int64_t blocks = ceil_div(x.elements(), kDropoutBlock * kThreads * kHeld);
  if (blocks == 0) return;
  dropout_kernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(
      Dropping<T>{.x = cuda_data<T>(x),
                  .draw = cuda_data<std::int32_t>(call.in(DropoutIn::draw)),
                  .y = cuda_data<T>(call.out(0)),
                  .rows = row_count(x),
                  .row_size = x.row_size(),
                  .site = static_cast<std::uint32_t>(a.site),
                  .threshold = threshold,
                  .scale = static_cast<CudaAccumulator<T>>(dropout_scale(threshold))});
  check_launch("dropout");
}

}  // namespace

void register_dropout_cuda(KernelRegistry& registry) {
  registry.add("dropout", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(DropoutIn::x).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
}

}  // namespace hone
