#include <algorithm>

#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"
#include "ops/rope/rope.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kFrequencies = 256;  // frequencies of a launch at most

struct Frequencies {
  float values[kFrequencies];
};

// Writes the columns of `count` frequencies from `first` on. The angle is an f32 product, as in transformers; its
// cosine and sine are computed in double and rounded once.
__global__ void __launch_bounds__(kThreads)
    table_kernel(const std::int32_t* positions, RowCount rows, Frequencies frequencies, int first, int count, int half,
                 float* table) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = item / count;
  const int i = static_cast<int>(item % count);
  begin_dependent_kernel();
  if (row >= rows.capacity) return;
  double cosine = 0;
  double sine = 0;
  if (row < rows.get()) {
    const float angle = static_cast<float>(positions[row]) * frequencies.values[i];
    sincos(static_cast<double>(angle), &sine, &cosine);
  }
  float* at = table + row * 2 * half + first + i;
  at[0] = static_cast<float>(cosine);
  at[half] = static_cast<float>(sine);
}

void table(const KernelCall& call) {
  const TensorView& positions = call.in(0);
  const std::vector<float> all = rope_inverse_frequencies(call.attributes_as<RopeTableAttributes>());
  const auto half = static_cast<int>(all.size());
  if (positions.capacity() == 0) return;
  for (int first = 0; first < half; first += kFrequencies) {
    const int count = std::min(kFrequencies, half - first);
    Frequencies frequencies{};
    std::copy_n(all.begin() + first, count, frequencies.values);
    const auto blocks = static_cast<unsigned>(ceil_div(positions.capacity() * count, kThreads));
    launch_dependent({blocks, kThreads}, stream_of(call), table_kernel, cuda_data<std::int32_t>(positions),
                     row_count(positions), frequencies, first, count, half, cuda_data<float>(call.out(0)));
    check_launch("rope_table");
  }
}

struct Heads {
  int heads, head_dim;
  bool inverse;
};

// Rotates one row, which a block has. A thread takes the packs at i and i + head_dim / 2 of a head, or a pack that is
// only copied.
template <class T, int kPack>
__global__ void rope_kernel(const T* x, const float* table, RowCount rows, std::int64_t n, Heads heads, T* y) {
  using A = CudaAccumulator<T>;
  using Elements = Pack<T, kPack>;
  using Rotations = Pack<float, kPack>;
  const std::int64_t row = blockIdx.x;
  begin_dependent_kernel();
  const bool used = row < rows.get();
  const int half = heads.head_dim / 2;
  const int packs_a_half = half / kPack;
  const int pairs = heads.heads * packs_a_half;
  const int rotated = heads.heads * heads.head_dim;
  const int items = pairs + static_cast<int>((n - rotated) / kPack);
  const A sign = heads.inverse ? A(-1) : A(1);
  x += row * n;
  y += row * n;
  table += row * heads.head_dim;
  for (int item = static_cast<int>(threadIdx.x); item < items; item += static_cast<int>(blockDim.x)) {
    if (item >= pairs) {
      const int at = rotated + (item - pairs) * kPack;
      *reinterpret_cast<Elements*>(y + at) = used ? *reinterpret_cast<const Elements*>(x + at) : Elements{};
      continue;
    }
    const int head = item / packs_a_half;
    const int i = (item - head * packs_a_half) * kPack;
    const int at = head * heads.head_dim + i;
    Elements first{};
    Elements second{};
    if (used) {
      first = *reinterpret_cast<const Elements*>(x + at);
      second = *reinterpret_cast<const Elements*>(x + at + half);
      const Rotations cosines = *reinterpret_cast<const Rotations*>(table + i);
      const Rotations sines = *reinterpret_cast<const Rotations*>(table + half + i);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const A a = widened(first[k]);
        const A b = widened(second[k]);
        const A cosine = static_cast<A>(cosines[k]);
        const A sine = sign * static_cast<A>(sines[k]);
        first[k] = narrowed<T>(a * cosine - b * sine);
        second[k] = narrowed<T>(b * cosine + a * sine);
      }
    }
    *reinterpret_cast<Elements*>(y + at) = first;
    *reinterpret_cast<Elements*>(y + at + half) = second;
  }
}

template <class T>
void rotate(const KernelCall& call) {
  const TensorView& x = call.in(RopeIn::x);
  if (x.capacity() == 0) return;
  const auto& a = call.attributes_as<RopeAttributes>();
  const std::int64_t n = x.row_size();
  const auto launch = [&]<int kPack>() {
    const std::int64_t items = (n - a.heads * a.head_dim / 2) / kPack;
    const auto threads = static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(items, 32) * 32, 32, 512));
    launch_dependent({static_cast<unsigned>(x.capacity()), threads}, stream_of(call), rope_kernel<T, kPack>,
                     cuda_data<T>(x), cuda_data<float>(call.in(RopeIn::table)), row_count(x), n,
                     Heads{static_cast<int>(a.heads), static_cast<int>(a.head_dim), a.inverse},
                     cuda_data<T>(call.out(0)));
  };
  if (a.head_dim / 2 % kPackSize<T> == 0) {
    with_pack<T>(n, launch);
  } else {
    launch.template operator()<1>();
  }
  check_launch("rope");
}

}  // namespace

void register_rope_cuda(KernelRegistry& registry) {
  registry.add("rope_table", DeviceKind::kCuda, {table, {}});
  registry.add("rope", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(RopeIn::x).dtype(), [&]<class T>() { rotate<T>(call); });
                },
                {}});
}

}  // namespace hone
