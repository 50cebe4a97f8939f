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

// Rotates one row, which a block has, a part of each head or by interleaved pairs. A thread computes single elements,
// each by the formula of rotate_row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    partial_rope_kernel(const T* x, const float* table, RowCount rows, PartlyRotatedRow row, T* y) {
  using A = CudaAccumulator<T>;
  const std::int64_t at = blockIdx.x;
  begin_dependent_kernel();
  const bool used = at < rows.get();
  x += at * row.n;
  y += at * row.n;
  table += at * 2 * row.half;
  const int offset = row.head_dim - 2 * row.half;
  for (int column = static_cast<int>(threadIdx.x); column < row.n; column += kThreads) {
    const int head = column / row.head_dim;
    const int i = column - head * row.head_dim - offset;  // in the rotated part
    if (!used || head >= row.heads || i < 0) {
      y[column] = used ? x[column] : T(0);
      continue;
    }
    const int pair = row.interleaved ? i / 2 : i % row.half;
    const bool is_second = row.interleaved ? i % 2 == 1 : i >= row.half;
    const int distance = row.interleaved ? 1 : row.half;
    const int first = is_second ? column - distance : column;
    const A a = widened(x[first]);
    const A b = widened(x[first + distance]);
    const A cosine = static_cast<A>(table[pair]);
    const A sine = (row.inverse ? A(-1) : A(1)) * static_cast<A>(table[row.half + pair]);
    y[column] = narrowed<T>(is_second ? b * cosine + a * sine : a * cosine - b * sine);
  }
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
  launch_dependent({static_cast<unsigned>(x.capacity()), kThreads}, stream_of(call), partial_rope_kernel<T>,
                   cuda_data<T>(x), cuda_data<float>(call.in(RopeIn::table)), row_count(x), row,
                   cuda_data<T>(call.out(0)));
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
