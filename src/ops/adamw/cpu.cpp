#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/adamw/adamw.h"
#include "ops/adamw/step.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

constexpr std::int64_t kRandomElements = 64;  // elements whose random bits are drawn together, an even number

// Random bits of successive elements, drawn ahead of the update so that both loops are vectorized.
struct RandomPieces {
  std::uint32_t weight[kRandomElements], m[kRandomElements], v[kRandomElements];

  // `first` is even.
  template <class A>
  void draw(const AdamwNumbers<A>& step, std::int64_t first) {
    const std::uint64_t group = static_cast<std::uint64_t>(step.first + first) / 2;
#pragma omp simd
    for (std::int64_t i = 0; i < kRandomElements / 2; ++i) {
      const RoundingBits bits = rounding_bits(step.seed, step.stream, step.step, group + static_cast<std::uint64_t>(i));
      for (int odd = 0; odd < 2; ++odd) {
        weight[2 * i + odd] = bits.get(odd, 0);
        m[2 * i + odd] = bits.get(odd, 1);
        v[2 * i + odd] = bits.get(odd, 2);
      }
    }
  }
};

// Operands of the update. `kept` is the master weight and `rounded` the weight; without a master weight, `kept` is the
// weight and `rounded` is null.
template <class T, class W, class S, class G>
struct AdamwUpdate {
  using A = Accumulator<T>;
  static constexpr bool kRandom = std::is_same_v<W, BFloat16> || std::is_same_v<S, BFloat16>;
  W* kept;
  T* rounded;
  G* gradient;
  S* m;
  S* v;

  template <bool kClears>
  void run(const AdamwNumbers<A>& step, std::int64_t begin, std::int64_t end) const {
    if constexpr (kRandom) {
      RandomPieces pieces;
      for (std::int64_t first = begin / 2 * 2; first < end; first += kRandomElements) {
        pieces.draw(step, first);
        const std::int64_t last = std::min(first + kRandomElements, end);
#pragma omp simd
        for (std::int64_t i = std::max(first, begin); i < last; ++i) {
          element<kClears>(step, i, pieces.weight[i - first], pieces.m[i - first], pieces.v[i - first]);
        }
      }
    } else {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) element<kClears>(step, i, 0, 0, 0);
    }
  }

 private:
  template <bool kClears>
  void element(const AdamwNumbers<A>& step, std::int64_t i, std::uint32_t weight_bits, std::uint32_t m_bits,
               std::uint32_t v_bits) const {
    const A g = widen(gradient[i]) * step.clip;
    const A new_m = step.next_m(widen(m[i]), g);
    const A new_v = step.next_v(widen(v[i]), g);
    const A w = step.next_weight(widen(kept[i]), new_m, new_v);
    store_rounded(kept[i], w, weight_bits);
    store_rounded(m[i], new_m, m_bits);
    store_rounded(v[i], new_v, v_bits);
    if constexpr (!std::is_same_v<T, W>) rounded[i] = static_cast<T>(w);
    if constexpr (kClears) gradient[i] = G(0);
  }
};

template <class T, class W, class S, class G>
void adamw_update(const KernelCall& call, W* kept, T* rounded) {
  using A = Accumulator<T>;
  const AdamwNumbers<A> step(call.attributes_as<AdamwAttributes>(), call.in(AdamwIn::hyper).as<A>(),
                             *call.in(AdamwIn::norm).as<A>());
  const TensorView& gradient = call.out(AdamwOut::gradient);
  const std::int64_t start = call.attributes_as<AdamwAttributes>().start_in(gradient.elements());
  const AdamwUpdate<T, W, S, G> all{kept, rounded, gradient.as<G>() + start, call.out(AdamwOut::m).as<S>(),
                                    call.out(AdamwOut::v).as<S>()};
  const bool clears = call.attributes_as<AdamwAttributes>().clears;
  parallel_for(call.out(AdamwOut::m).elements(), 16384, [&](std::int64_t begin, std::int64_t end) {
    clears ? all.template run<true>(step, begin, end) : all.template run<false>(step, begin, end);
  });
}

template <class T>
void adamw_forward(const KernelCall& call) {
  using A = Accumulator<T>;
  if (*call.in(AdamwIn::bad).as<std::int32_t>() != 0) {
    const TensorView& gradient = call.out(AdamwOut::gradient);
    if (call.attributes_as<AdamwAttributes>().clears) std::memset(gradient.data, 0, gradient.type->bytes());
    return;
  }
  const TensorView& whole = call.out(AdamwOut::weight);
  T* weight = whole.as<T>() + call.attributes_as<AdamwAttributes>().start_in(whole.elements());
  const auto with_types = [&]<class S, class G>() {
    if (call.in(AdamwIn::master)) {
      adamw_update<T, A, S, G>(call, call.out(AdamwOut::master).as<A>(), weight);
    } else {
      adamw_update<T, T, S, G>(call, weight, nullptr);
    }
  };
  const bool narrow_gradient = call.in(AdamwIn::gradient).dtype() == DType::kBf16;
  const bool narrow_states = call.in(AdamwIn::m).dtype() == DType::kBf16;
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (narrow_states && narrow_gradient) return with_types.template operator()<T, T>();
    if (narrow_states) return with_types.template operator()<T, A>();
    if (narrow_gradient) return with_types.template operator()<A, T>();
  }
  with_types.template operator()<A, A>();
}

}  // namespace

void register_adamw_cpu(KernelRegistry& registry) {
  registry.add("adamw", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(AdamwIn::weight).dtype(), [&]<class T>() { adamw_forward<T>(call); });
                },
                {}});
}

}  // namespace hone
