#include <algorithm>
#include <cmath>

#include "ops/registry.h"
#include "ops/rope/rope.h"
#include "ops/rope/row.h"
#include "ops/rows.h"

namespace hone {
namespace {

// Computes the table. The angle is an f32 product, as in transformers; its cosine and sine are computed in double,
// rounded, and multiplied by attention_factor in f32.
void table(const KernelCall& call) {
  const TensorView& positions = call.in(0);
  const auto& a = call.attributes_as<RopeTableAttributes>();
  const std::vector<float> frequencies = rope_inverse_frequencies(a);
  const auto factor = static_cast<float>(a.attention_factor);
  const auto half = static_cast<std::int64_t>(frequencies.size());
  const auto* ids = positions.as<std::int32_t>();
  auto* out = call.out(0).as<float>();
  for_rows(positions.rows(), 64 * half, [&](std::int64_t row) {
    float* cosines = out + row * 2 * half;
    float* sines = cosines + half;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(ids[row]) * frequencies[static_cast<std::size_t>(i)];
      cosines[i] = static_cast<float>(std::cos(angle)) * factor;
      sines[i] = static_cast<float>(std::sin(angle)) * factor;
    }
  });
  zero_tail(call.out(0));
}

template <class T>
void rotate(const KernelCall& call) {
  const TensorView& x = call.in(RopeIn::x);
  const auto& a = call.attributes_as<RopeAttributes>();
  const std::int64_t n = x.row_size();
  const T* xs = x.as<T>();
  const auto* table = call.in(RopeIn::table).as<float>();
  T* ys = call.out(0).as<T>();
  for_rows(x.rows(), n,
           [&](std::int64_t row) { rotate_row(xs + row * n, table + row * a.rotated_dim(), n, a, ys + row * n); });
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
