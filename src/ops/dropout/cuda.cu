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
  DropoutColumns columns = {};  // of a part
};

// Returns element i's random number in a block of a part, whose elements may be in several blocks of the whole value.
template <class T>
__device__ std::uint32_t number_of_part(const Dropping<T>& p, const std::array<std::uint32_t, kDropoutDraw>& draw,
                                        std::int64_t element, std::array<std::uint32_t, 4>& bits, std::int64_t& held) {
  const std::int64_t place = p.columns.place(element);
  if (place / kDropoutBlock != held) {
    held = place / kDropoutBlock;
    bits = dropout_bits(draw, p.site, static_cast<std::uint32_t>(held));
  }
  return dropout_number(bits, static_cast<int>(place % kDropoutBlock));
}

// A thread has blocks `first` and first + kThreads of elements.
template <class T, bool part>
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
    std::array<std::uint32_t, 4> bits{};
    std::int64_t block_of_bits = -1;
    if constexpr (!part) bits = dropout_bits(draw, p.site, static_cast<std::uint32_t>(block));
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      const std::uint32_t number =
          part ? number_of_part(p, draw, at + i, bits, block_of_bits) : dropout_number(bits, i);
      const bool stays = number >= p.threshold && at + i < used;
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

template <class T, bool part>
void drop(const KernelCall& call, double probability, std::int64_t site, const DropoutColumns& columns) {
  const TensorView& x = call.in(DropoutIn::x);
  const std::uint32_t threshold = dropout_threshold(probability);
  const std::int64_t blocks = ceil_div(x.elements(), kDropoutBlock * kThreads * kHeld);
  if (blocks == 0) return;
  dropout_kernel<T, part><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call)>>>(
      Dropping<T>{.x = cuda_data<T>(x),
                  .draw = cuda_data<std::int32_t>(call.in(DropoutIn::draw)),
                  .y = cuda_data<T>(call.out(0)),
                  .rows = row_count(x),
                  .row_size = x.row_size(),
                  .site = static_cast<std::uint32_t>(site),
                  .threshold = threshold,
                  .scale = static_cast<CudaAccumulator<T>>(dropout_scale(threshold)),
                  .columns = columns});
  check_launch(part ? "dropout_part" : "dropout");
}

template <class T>
void forward(const KernelCall& call) {
  const auto& a = call.attributes_as<DropoutAttributes>();
  drop<T, false>(call, a.probability, a.site, {});
}

template <class T>
void forward_part(const KernelCall& call) {
  const auto& a = call.attributes_as<DropoutPartAttributes>();
  drop<T, true>(call, a.probability, a.site,
                {.first = a.first, .count = call.in(DropoutIn::x).row_size(), .whole = a.columns});
}

}  // namespace

void register_dropout_cuda(KernelRegistry& registry) {
  registry.add("dropout", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(DropoutIn::x).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
  registry.add("dropout_part", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(DropoutIn::x).dtype(), [&]<class T>() { forward_part<T>(call); });
                },
                {}});
}

}  // namespace hone
