#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "ops/adamw/adamw.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// The numbers of a step, as the elements need them.
template <class A>
struct Step {
  A clip = 1, decay, rate, correction2, rest1, beta2, rest2, epsilon;

  Step(const AdamwAttributes& attributes, const A* hyper, A norm)
      : correction2(hyper[static_cast<std::size_t>(AdamwHyper::correction2)]),
        rest1(static_cast<A>(1.0 - attributes.beta1)),
        beta2(static_cast<A>(attributes.beta2)),
        rest2(static_cast<A>(1.0 - attributes.beta2)),
        epsilon(static_cast<A>(attributes.epsilon)) {
    const A max_norm = hyper[static_cast<std::size_t>(AdamwHyper::max_grad_norm)];
    if (max_norm > A(0)) clip = std::min(A(1), max_norm / (norm + A(1e-6)));
    const A learning_rate = hyper[static_cast<std::size_t>(AdamwHyper::learning_rate)];
    decay = static_cast<A>(1.0 - static_cast<double>(learning_rate) * attributes.weight_decay);
    rate = learning_rate * hyper[static_cast<std::size_t>(AdamwHyper::correction1)];
  }
};

// `kept` is the master weight, and `rounded` the weight; without a master weight, `kept` is the weight.
template <class T, class W>
void update(const Step<Accumulator<T>>& step, const KernelCall& call, W* kept, T* rounded) {
  using A = Accumulator<T>;
  A* gradient = call.out(1).as<A>();
  A* m = call.out(2).as<A>();
  A* v = call.out(3).as<A>();
  parallel_for(call.out(0).elements(), 16384, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const A g = gradient[i] * step.clip;
      m[i] += step.rest1 * (g - m[i]);
      v[i] = step.beta2 * v[i] + step.rest2 * g * g;
      const A change = step.rate * m[i] / (std::sqrt(v[i]) * step.correction2 + step.epsilon);
      const A w = widen(kept[i]) * step.decay - change;
      kept[i] = static_cast<W>(w);
      if constexpr (!std::is_same_v<T, W>) rounded[i] = static_cast<T>(w);
      gradient[i] = A(0);
    }
  });
}

template <class T>
void forward(const KernelCall& call) {
  using A = Accumulator<T>;
  if (*call.in(7).as<std::int32_t>() != 0) {
    std::memset(call.out(1).data, 0, call.out(1).type->bytes());
    return;
  }
  const Step<A> step(call.attributes_as<AdamwAttributes>(), call.in(6).as<A>(), *call.in(5).as<A>());
  T* weight = call.out(0).as<T>();
  if (call.in(4)) {
    update<T, A>(step, call, call.out(4).as<A>(), weight);
  } else {
    update<T, T>(step, call, weight, nullptr);
  }
}

}  // namespace

void register_adamw_cpu(KernelRegistry& registry) {
  registry.add(
      "adamw", DeviceKind::cpu,
      {[](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); }, {}});
}

}  // namespace hone
