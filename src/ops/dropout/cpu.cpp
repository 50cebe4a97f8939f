#include <algorithm>

#include "ops/dropout/dropout.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// The random numbers of elements in ascending order.
class Numbers {
 public:
  Numbers(const KernelCall& call, std::int64_t site) : site_(static_cast<std::uint32_t>(site)) {
    const auto* given = call.in(DropoutIn::draw).as<std::int32_t>();
    for (std::size_t i = 0; i < draw_.size(); ++i) draw_[i] = static_cast<std::uint32_t>(given[i]);
  }

  // element: index in the whole value
  [[nodiscard]] std::uint32_t of(std::int64_t element) {
    if (const std::int64_t block = element / kDropoutBlock; block != block_) {
      bits_ = dropout_bits(draw_, site_, static_cast<std::uint32_t>(block));
      block_ = block;
    }
    return dropout_number(bits_, static_cast<int>(element % kDropoutBlock));
  }

 private:
  std::array<std::uint32_t, kDropoutDraw> draw_{};
  std::uint32_t site_;
  std::int64_t block_ = -1;
  std::array<std::uint32_t, 4> bits_{};
};

// place(element) is the index in the whole value of an element of x.
template <class T, class Place>
void drop(const KernelCall& call, double probability, std::int64_t site, const Place& place) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(DropoutIn::x);
  const std::uint32_t threshold = dropout_threshold(probability);
  const A scale = static_cast<A>(dropout_scale(threshold));
  const T* xs = x.as<T>();
  T* ys = call.out(0).as<T>();
  const std::int64_t elements = x.rows() * x.row_size();
  const std::int64_t blocks = (elements + kDropoutBlock - 1) / kDropoutBlock;
  parallel_for(blocks, 256, [&](std::int64_t begin, std::int64_t end) {
    Numbers numbers(call, site);
    for (std::int64_t i = begin * kDropoutBlock; i < std::min(elements, end * kDropoutBlock); ++i) {
      ys[i] = numbers.of(place(i)) >= threshold ? static_cast<T>(widen(xs[i]) * scale) : T(0);
    }
  });
  zero_tail(call.out(0));
}

template <class T>
void forward(const KernelCall& call) {
  const auto& a = call.attributes_as<DropoutAttributes>();
  drop<T>(call, a.probability, a.site, [](std::int64_t element) { return element; });
}

template <class T>
void forward_part(const KernelCall& call) {
  const auto& a = call.attributes_as<DropoutPartAttributes>();
  const DropoutColumns columns{.first = a.first, .count = call.in(DropoutIn::x).row_size(), .whole = a.columns};
  drop<T>(call, a.probability, a.site, [&](std::int64_t element) { return columns.place(element); });
}

}  // namespace

void register_dropout_cpu(KernelRegistry& registry) {
  registry.add("dropout", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(DropoutIn::x).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
  registry.add("dropout_part", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(DropoutIn::x).dtype(), [&]<class T>() { forward_part<T>(call); });
                },
                {}});
}

}  // namespace hone
