#include <algorithm>

#include "ops/dropout/dropout.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(DropoutIn::x);
  const auto& a = call.attributes_as<DropoutAttributes>();
  const auto* given = call.in(DropoutIn::draw).as<std::int32_t>();
  std::array<std::uint32_t, kDropoutDraw> draw{};
  for (std::size_t i = 0; i < draw.size(); ++i) draw[i] = static_cast<std::uint32_t>(given[i]);
  const std::uint32_t threshold = dropout_threshold(a.probability);
  const A scale = static_cast<A>(dropout_scale(threshold));
  const T* xs = x.as<T>();
  T* ys = call.out(0).as<T>();
  const std::int64_t elements = x.rows() * x.row_size();
  const std::int64_t blocks = (elements + kDropoutBlock - 1) / kDropoutBlock;
  parallel_for(blocks, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const auto bits = dropout_bits(draw, static_cast<std::uint32_t>(a.site), static_cast<std::uint32_t>(block));
      const std::int64_t first = block * kDropoutBlock;
      const auto count = static_cast<int>(std::min(kDropoutBlock, elements - first));
      for (int i = 0; i < count; ++i) {
        const bool stays = dropout_number(bits, i) >= threshold;
        ys[first + i] = stays ? static_cast<T>(widen(xs[first + i]) * scale) : T(0);
      }
    }
  });
  zero_tail(call.out(0));
}

}  // namespace

void register_dropout_cpu(KernelRegistry& registry) {
  registry.add("dropout", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(DropoutIn::x).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
}

}  // namespace hone
