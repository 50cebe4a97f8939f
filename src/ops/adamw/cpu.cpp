#include <cstring>
#include <type_traits>

#include "ops/adamw/adamw.h"
#include "ops/adamw/step.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// Operands of the update. `kept` is the master weight and `rounded` the weight; without a master weight, `kept` is the
// weight and `rounded` is null.
template <class T, class W, class S, class G>
struct Update {
  using A = Accumulator<T>;
  static constexpr bool kRandom = std::is_same_v<W, BFloat16> || std::is_same_v<S, BFloat16>;
  W* kept;
  T* rounded;
  G* gradient;
  S* m;
  S* v;

  void run(const AdamwNumbers<A>& step, std::int64_t begin, std::int64_t end) const {
    if constexpr (kRandom) {
      for (std::int64_t i = begin; i < end; ++i) {
        const RoundingBits bits = rounding_bits(step.seed, step.stream, step.step, static_cast<std::uint64_t>(i) / 2);
        element(step, i, bits);
      }
    } else {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) element(step, i, {});
    }
  }

 private:
  void element(const AdamwNumbers<A>& step, std::int64_t i, const RoundingBits& bits) const {
    const A g = widen(gradient[i]) * step.clip;
    const A new_m = step.next_m(widen(m[i]), g);
    const A new_v = step.next_v(widen(v[i]), g);
    const A w = step.next_weight(widen(kept[i]), new_m, new_v);
    const int odd = static_cast<int>(i % 2);
    store_rounded(kept[i], w, bits.get(odd, 0));
    store_rounded(m[i], new_m, bits.get(odd, 1));
    store_rounded(v[i], new_v, bits.get(odd, 2));
    if constexpr (!std::is_same_v<T, W>) rounded[i] = static_cast<T>(w);
    gradient[i] = G(0);
  }
};

template <class T, class W, class S, class G>
void update(const KernelCall& call, W* kept, T* rounded) {
  using A = Accumulator<T>;
  const AdamwNumbers<A> step(call.attributes_as<AdamwAttributes>(), call.in(AdamwIn::hyper).as<A>(),
                             *call.in(AdamwIn::norm).as<A>());
  const Update<T, W, S, G> all{kept, rounded, call.out(AdamwOut::gradient).as<G>(), call.out(AdamwOut::m).as<S>(),
                               call.out(AdamwOut::v).as<S>()};
  parallel_for(call.out(AdamwOut::weight).elements(), 16384,
               [&](std::int64_t begin, std::int64_t end) { all.run(step, begin, end); });
}

template <class T>
void forward(const KernelCall& call) {
  using A = Accumulator<T>;
  if (*call.in(AdamwIn::bad).as<std::int32_t>() != 0) {
    std::memset(call.out(AdamwOut::gradient).data, 0, call.out(AdamwOut::gradient).type->bytes());
    return;
  }
  T* weight = call.out(AdamwOut::weight).as<T>();
  const auto with_types = [&]<class S, class G>() {
    if (call.in(AdamwIn::master)) {
      update<T, A, S, G>(call, call.out(AdamwOut::master).as<A>(), weight);
    } else {
      update<T, T, S, G>(call, weight, nullptr);
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
                  for_floating(call.in(AdamwIn::weight).dtype(), [&]<class T>() { forward<T>(call); });
                },
                {}});
}

}  // namespace hone
