#include <algorithm>
#include <cmath>

#include "ops/registry.h"
#include "ops/rope/rope.h"
#include "ops/rows.h"

namespace hone {
namespace {

// Computes the table. The angle is an f32 product, as in transformers; its cosine and sine are computed in double and
// rounded once.
void table(const KernelCall& call) {
  const TensorView& positions = call.in(0);
  const std::vector<float> frequencies = rope_inverse_frequencies(call.attributes_as<RopeTableAttributes>());
  const auto half = static_cast<std::int64_t>(frequencies.size());
  const auto* ids = positions.as<std::int32_t>();
  auto* out = call.out(0).as<float>();
  for_rows(positions.rows(), 64 * half, [&](std::int64_t row) {
    float* cosines = out + row * 2 * half;
    float* sines = cosines + half;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(ids[row]) * frequencies[static_cast<std::size_t>(i)];
      cosines[i] = static_cast<float>(std::cos(angle));
      sines[i] = static_cast<float>(std::sin(angle));
    }
  });
  zero_tail(call.out(0));
}

template <class T>
void rotate(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(RopeIn::x);
  const auto& a = call.attributes_as<RopeAttributes>();
  const std::int64_t n = x.row_size();
  const std::int64_t half = a.head_dim / 2;
  const A sign = a.inverse ? A(-1) : A(1);
  const T* xs = x.as<T>();
  const auto* rotations = call.in(RopeIn::table).as<float>();
  T* ys = call.out(0).as<T>();
  for_rows(x.rows(), n, [&](std::int64_t row) {
    const float* cosines = rotations + row * a.head_dim;
    const float* sines = cosines + half;
    for (std::int64_t head = 0; head < a.heads; ++head) {
      const T* in = xs + row * n + head * a.head_dim;
      T* out = ys + row * n + head * a.head_dim;
      for (std::int64_t i = 0; i < half; ++i) {
        const A first = widen(in[i]);
        const A second = widen(in[half + i]);
        const A cosine = static_cast<A>(cosines[i]);
        const A sine = sign * static_cast<A>(sines[i]);
        out[i] = static_cast<T>(first * cosine - second * sine);
        out[half + i] = static_cast<T>(second * cosine + first * sine);
      }
    }
    const std::int64_t rotated = a.heads * a.head_dim;
    std::copy(xs + row * n + rotated, xs + (row + 1) * n, ys + row * n + rotated);
  });
  zero_tail(call.out(0));
}

}  // namespace

void register_rope_cpu(KernelRegistry& registry) {
  registry.add("rope_table", DeviceKind::kCpu, {table, {}});
  registry.add(
      "rope", DeviceKind::kCpu,
      {[](const KernelCall& call) { for_floating(call.in(RopeIn::x).dtype(), [&]<class T>() { rotate<T>(call); }); },
       {}});
}

}  // namespace hone
