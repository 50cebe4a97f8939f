#include <cstring>
#include <type_traits>

#include "ops/adamw/step.h"
#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/sgd/sgd.h"
#include "ops/sgd/step.h"

namespace hone {
namespace {

// Updates all elements. `kept` is the master weight and `rounded` the weight; without a master weight, `kept` is the
// weight and `rounded` is null. `momentum` may be null.
template <class T, class W, class G>
void sgd_update(const KernelCall& call, W* kept, T* rounded, Accumulator<T>* momentum) {
  using A = Accumulator<T>;
  const SgdNumbers<A> step(call.attributes_as<SgdAttributes>(), call.in(SgdIn::hyper).as<A>(),
                           *call.in(SgdIn::norm).as<A>());
  const bool clears = call.attributes_as<SgdAttributes>().clears;
  G* gradients = call.out(SgdOut::gradient).as<G>();
  parallel_for(call.out(SgdOut::weight).elements(), 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const A before = widen(kept[i]);
      const A g = step.gradient(widen(gradients[i]), before);
      A next = g;
      if (momentum != nullptr) momentum[i] = next = step.next_momentum(momentum[i], g);
      const A w = step.next_weight(before, g, next);
      std::uint32_t bits = 0;
      if constexpr (std::is_same_v<W, BFloat16>) {
        const auto group = static_cast<std::uint64_t>(i) / 2;
        bits = rounding_bits(step.seed, step.stream, step.step, group).get(static_cast<int>(i % 2), 0);
      }
      store_rounded(kept[i], w, bits);
      if constexpr (!std::is_same_v<T, W>) rounded[i] = static_cast<T>(w);
      if (clears) gradients[i] = G(0);
    }
  });
}

template <class T>
void sgd_forward(const KernelCall& call) {
  using A = Accumulator<T>;
  if (*call.in(SgdIn::bad).as<std::int32_t>() != 0) {
    const TensorView& gradient = call.out(SgdOut::gradient);
    if (call.attributes_as<SgdAttributes>().clears) std::memset(gradient.data, 0, gradient.type->bytes());
    return;
  }
  const bool has_momentum = call.attributes_as<SgdAttributes>().momentum != 0;
  const std::size_t at_master = sgd_master(call.attributes_as<SgdAttributes>());
  A* momentum = has_momentum ? call.out(SgdOut::momentum).as<A>() : nullptr;
  T* weight = call.out(SgdOut::weight).as<T>();
  const auto with_gradient = [&]<class G>() {
    if (call.in(at_master)) {
      sgd_update<T, A, G>(call, call.out(at_master).as<A>(), weight, momentum);
    } else {
      sgd_update<T, T, G>(call, weight, nullptr, momentum);
    }
  };
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (call.in(SgdIn::gradient).dtype() == DType::kBf16) return with_gradient.template operator()<T>();
  }
  with_gradient.template operator()<A>();
}

}  // namespace

void register_sgd_cpu(KernelRegistry& registry) {
  registry.add("sgd", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(SgdIn::weight).dtype(), [&]<class T>() { sgd_forward<T>(call); });
                },
                {}});
}

}  // namespace hone
