#include <algorithm>

#include "ops/dropout/dropout.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

using Draw = std::array<std::uint32_t, kDropoutDraw>;
using BlockNumbers = std::array<std::uint32_t, kDropoutBlock>;

Draw draw_of(const KernelCall& call) {
  const auto* given = call.in(DropoutIn::draw).as<std::int32_t>();
  Draw draw{};
  for (std::size_t i = 0; i < draw.size(); ++i) draw[i] = static_cast<std::uint32_t>(given[i]);
  return draw;
}

// numbers_of(block) returns the random numbers of eight elements of x that follow each other.
template <class T, class NumbersOf>
void drop(const KernelCall& call, double probability, const NumbersOf& numbers_of) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(DropoutIn::x);
  const std::uint32_t threshold = dropout_threshold(probability);
  const A scale = static_cast<A>(dropout_scale(threshold));
  const T* xs = x.as<T>();
  T* ys = call.out(0).as<T>();
  const std::int64_t elements = x.rows() * x.row_size();
  const std::int64_t blocks = (elements + kDropoutBlock - 1) / kDropoutBlock;
  parallel_for(blocks, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const BlockNumbers numbers = numbers_of(block);
      const std::int64_t first = block * kDropoutBlock;
      const std::int64_t count = std::min(kDropoutBlock, elements - first);
      for (std::int64_t i = 0; i < count; ++i) {
        const bool stays = numbers[static_cast<std::size_t>(i)] >= threshold;
        ys[first + i] = stays ? static_cast<T>(widen(xs[first + i]) * scale) : T(0);
      }
    }
  });
  zero_tail(call.out(0));
}

template <class T>
void dropout_forward(const KernelCall& call) {
  const auto& a = call.attributes_as<DropoutAttributes>();
  const Draw draw = draw_of(call);
  drop<T>(call, a.probability, [&](std::int64_t block) {
    const auto bits = dropout_bits(draw, static_cast<std::uint32_t>(a.site), static_cast<std::uint32_t>(block));
    BlockNumbers numbers{};
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = dropout_number(bits, static_cast<int>(i));
    return numbers;
  });
}

// Eight elements of a part may be in several blocks of the whole value.
template <class T>
void dropout_forward_part(const KernelCall& call) {
  const auto& a = call.attributes_as<DropoutPartAttributes>();
  const Draw draw = draw_of(call);
  const DropoutColumns columns{.first = a.first, .count = call.in(DropoutIn::x).row_size(), .whole = a.columns};
  drop<T>(call, a.probability, [&](std::int64_t block) {
    BlockNumbers numbers{};
    std::int64_t held = -1;
    std::array<std::uint32_t, 4> bits{};
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::int64_t place = columns.place(block * kDropoutBlock + static_cast<std::int64_t>(i));
      if (place / kDropoutBlock != held) {
        held = place / kDropoutBlock;
        bits = dropout_bits(draw, static_cast<std::uint32_t>(a.site), static_cast<std::uint32_t>(held));
      }
      numbers[i] = dropout_number(bits, static_cast<int>(place % kDropoutBlock));
    }
    return numbers;
  });
}

}  // namespace

void register_dropout_cpu(KernelRegistry& registry) {
  registry.add("dropout", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(DropoutIn::x).dtype(), [&]<class T>() { dropout_forward<T>(call); });
                },
                {}});
  registry.add("dropout_part", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(DropoutIn::x).dtype(), [&]<class T>() { dropout_forward_part<T>(call); });
                },
                {}});
}

}  // namespace hone
