#include <algorithm>

#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"
#include "ops/rope/rope.h"
#include "ops/rope/row.cuh"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kFrequencies = 256;  // frequencies of a launch at most

struct Frequencies {
  float values[kFrequencies];
};

// Writes the columns of `count` frequencies from `first` on. The angle is an f32 product, as in transformers; its
// cosine and sine are computed in double, rounded, and multiplied by `factor` in f32.
__global__ void __launch_bounds__(kThreads)
    table_kernel(const std::int32_t* positions, RowCount rows, Frequencies frequencies, int first, int count, int half,
                 float factor, float* table) {
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
  at[0] = static_cast<float>(cosine) * factor;
  at[half] = static_cast<float>(sine) * factor;
}

void table(const KernelCall& call) {
  const TensorView& positions = call.in(0);
  const auto& a = call.attributes_as<RopeTableAttributes>();
  const std::vector<float> all = rope_inverse_frequencies(a);
  const auto half = static_cast<int>(all.size());
  if (positions.capacity() == 0) return;
  for (int first = 0; first < half; first += kFrequencies) {
    const int count = std::min(kFrequencies, half - first);
    Frequencies frequencies{};
    std::copy_n(all.begin() + first, count, frequencies.values);
    const auto blocks = static_cast<unsigned>(ceil_div(positions.capacity() * count, kThreads));
    launch_dependent({blocks, kThreads}, stream_of(call), table_kernel, cuda_data<std::int32_t>(positions),
                     row_count(positions), frequencies, first, count, half, static_cast<float>(a.attention_factor),
                     cuda_data<float>(call.out(0)));
    check_launch("rope_table");
  }
}

// Rotates one row, which a block has.
template <class T, int kPack>
__global__ void rope_kernel(const T* x, const float* table, RowCount rows, RotatedRow row, T* y) {
  const std::int64_t at = blockIdx.x;
  begin_dependent_kernel();
  y += at * row.n;
  rotate_row<T, kPack>(
      x + at * row.n, table + at * row.head_dim, at < rows.get(), row,
      [&](int column, const Pack<T, kPack>& values) { *reinterpret_cast<Pack<T, kPack>*>(y + column) = values; });
}

// The heads of a row of n elements whose last 2 half elements are rotated.
struct PartlyRotatedRow {
  int n, heads, head_dim, half;
  bool inverse, interleaved;
};

// The pack at `column`, in the rotated part of a head, and what it is rotated by: the other pack of its pairs or, if
// pairs are neighbours in a pack, the pack itself.
template <class T, int kPack>
[[nodiscard]] __device__ Pack<T, kPack> rotated_pack(const T* x, const float* table, const PartlyRotatedRow& row,
                                                     int column, int i) {
  using A = CudaAccumulator<T>;
  Pack<T, kPack> own = *reinterpret_cast<const Pack<T, kPack>*>(x + column);
  const A sign = row.inverse ? A(-1) : A(1);
  if (kPack > 1 && row.interleaved) {
    constexpr int kPairs = kPack > 1 ? kPack / 2 : 1;
    using Rotations = Pack<float, kPairs>;
    const Rotations cosines = *reinterpret_cast<const Rotations*>(table + i / 2);
    const Rotations sines = *reinterpret_cast<const Rotations*>(table + row.half + i / 2);
#pragma unroll
    for (int k = 0; k + 1 < kPack; k += 2) {
      const A a = widened(own[k]);
      const A b = widened(own[k + 1]);
      const A cosine = static_cast<A>(cosines[k / 2]);
      const A sine = sign * static_cast<A>(sines[k / 2]);
      own[k] = narrowed<T>(a * cosine - b * sine);
      own[k + 1] = narrowed<T>(b * cosine + a * sine);
    }
    return own;
  }
  using Rotations = Pack<float, kPack>;
  const int pair = row.interleaved ? i / 2 : i % row.half;
  const bool is_second = row.interleaved ? i % 2 == 1 : i >= row.half;
  const int distance = row.interleaved ? 1 : row.half;
  const auto other = *reinterpret_cast<const Pack<T, kPack>*>(x + column + (is_second ? -distance : distance));
  const Rotations cosines = *reinterpret_cast<const Rotations*>(table + pair);
  const Rotations sines = *reinterpret_cast<const Rotations*>(table + row.half + pair);
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    const A a = widened(is_second ? other[k] : own[k]);
    const A b = widened(is_second ? own[k] : other[k]);
    const A cosine = static_cast<A>(cosines[k]);
    const A sine = sign * static_cast<A>(sines[k]);
    own[k] = narrowed<T>(is_second ? b * cosine + a * sine : a * cosine - b * sine);
  }
  return own;
}

// Rotates a part of each head, or interleaved pairs. A thread has one pack, whose elements it computes by the formula
// of rotate_row.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    partial_rope_kernel(const T* x, const float* table, RowCount rows, PartlyRotatedRow row, T* y) {
  using Elements = Pack<T, kPack>;
  const std::int64_t place = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  begin_dependent_kernel();
  const std::int64_t at = place / row.n;
  if (at >= rows.capacity) return;
  const auto column = static_cast<int>(place - at * row.n);
  const int head = column / row.head_dim;
  const int i = column - head * row.head_dim - (row.head_dim - 2 * row.half);  // in the rotated part
  Elements result{};
  if (at < rows.get()) {
    x += at * row.n;
    if (head >= row.heads || i < 0) {
      result = *reinterpret_cast<const Elements*>(x + column);
    } else {
      result = rotated_pack<T, kPack>(x, table + at * 2 * row.half, row, column, i);
    }
  }
  *reinterpret_cast<Elements*>(y + place) = result;
}

template <class T>
void rotate_partly(const KernelCall& call) {
  const TensorView& x = call.in(RopeIn::x);
  const auto& a = call.attributes_as<RopeAttributes>();
  const PartlyRotatedRow row{.n = static_cast<int>(x.row_size()),
                             .heads = static_cast<int>(a.heads),
                             .head_dim = static_cast<int>(a.head_dim),
                             .half = static_cast<int>(a.rotated_dim() / 2),
                             .inverse = a.inverse,
                             .interleaved = a.interleaved};
  // A pack is within one part of a head, and its pairs within it or with one other pack.
  const int part = a.interleaved ? 2 * row.half : row.half;
  with_pack<T>(row.n | row.head_dim | part, [&]<int kPack>() {
    const auto blocks = static_cast<unsigned>(ceil_div(x.capacity() * row.n / kPack, kThreads));
    launch_dependent({blocks, kThreads}, stream_of(call), partial_rope_kernel<T, kPack>, cuda_data<T>(x),
                     cuda_data<float>(call.in(RopeIn::table)), row_count(x), row, cuda_data<T>(call.out(0)));
  });
  check_launch("rope");
}

template <class T>
void rotate(const KernelCall& call) {
  const TensorView& x = call.in(RopeIn::x);
  if (x.capacity() == 0) return;
  const auto& a = call.attributes_as<RopeAttributes>();
  if (a.offset > 0 || a.interleaved) return rotate_partly<T>(call);
  const RotatedRow row{.n = static_cast<int>(x.row_size()),
                       .heads = static_cast<int>(a.heads),
                       .head_dim = static_cast<int>(a.head_dim),
                       .inverse = a.inverse};
  with_rotated_row<T>(row, [&]<int kPack>(unsigned threads) {
    launch_dependent({static_cast<unsigned>(x.capacity()), threads}, stream_of(call), rope_kernel<T, kPack>,
                     cuda_data<T>(x), cuda_data<float>(call.in(RopeIn::table)), row_count(x), row,
                     cuda_data<T>(call.out(0)));
  });
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
