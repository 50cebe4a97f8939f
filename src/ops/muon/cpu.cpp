#include <algorithm>
#include <type_traits>

#include "ops/adamw/step.h"
#include "ops/muon/muon.h"
#include "ops/muon/step.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements

template <class G>
void momentum(const KernelCall& call) {
  using A = Accumulator<G>;
  const auto& attributes = call.attributes_as<MuonMomentumAttributes>();
  const bool bad = *call.in(MuonMomentumIn::bad).as<std::int32_t>() != 0;
  const MuonMomentumNumbers<A> step(attributes.momentum, attributes.nesterov, call.in(MuonMomentumIn::hyper).as<A>(),
                                    *call.in(MuonMomentumIn::norm).as<A>());
  const std::int64_t first = attributes.first_row * call.out(MuonMomentumOut::gradient).row_size();
  G* gradients = call.out(MuonMomentumOut::gradient).as<G>() + first;
  A* momenta = call.out(MuonMomentumOut::momentum).as<A>() + first;
  A* directions = call.out(MuonMomentumOut::direction).as<A>();
  parallel_for(call.out(MuonMomentumOut::direction).elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const A g = widen(gradients[i]) * step.clip;
      gradients[i] = G(0);
      directions[i] = 0;
      if (bad) continue;
      momenta[i] = step.next_momentum(momenta[i], g);
      directions[i] = step.direction(momenta[i], g);
    }
  });
}

template <class T>
void unit(const KernelCall& call) {
  using A = Accumulator<T>;
  const A* x = call.in(MuonUnitIn::x).as<A>();
  T* y = call.out(0).as<T>();
  const A norm =
      std::max(*call.in(MuonUnitIn::norm).as<A>(), static_cast<A>(call.attributes_as<MuonUnitAttributes>().epsilon));
  parallel_for(call.out(0).elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(x[i] / norm);
  });
}

template <class T, class Y>
void combine(const KernelCall& call) {
  using A = Accumulator<T>;
  const auto& attributes = call.attributes_as<MuonCombineAttributes>();
  const auto a = static_cast<A>(attributes.a);
  const auto b = static_cast<A>(attributes.b);
  const T* x = call.in(MuonCombineIn::x).as<T>();
  const Y* y = call.in(MuonCombineIn::y).as<Y>();
  T* z = call.out(0).as<T>();
  parallel_for(call.out(0).elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) z[i] = static_cast<T>(a * widen(x[i]) + b * widen(y[i]));
  });
}

template <class T>
void combine(const KernelCall& call) {
  if (call.in(MuonCombineIn::y).dtype() == call.in(MuonCombineIn::x).dtype()) {
    combine<T, T>(call);
  } else {
    combine<T, Accumulator<T>>(call);
  }
}

// Moves the rows. `kept` is the master weight and `rounded` the weight; without a master weight, `kept` is the weight
// and `rounded` is null.
template <class T, class W>
void apply(const KernelCall& call, W* kept, T* rounded) {
  using A = Accumulator<T>;
  const auto& attributes = call.attributes_as<MuonApplyAttributes>();
  const MuonApplyNumbers<A> step(attributes, call.in(MuonApplyIn::hyper).as<A>());
  const std::int64_t first = attributes.first_row * call.out(MuonApplyOut::weight).row_size();
  const T* moves = call.in(MuonApplyIn::move).as<T>();
  parallel_for(call.in(MuonApplyIn::move).elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = first + i;
      const A w = step.next_weight(widen(kept[at]), widen(moves[i]));
      std::uint32_t bits = 0;
      if constexpr (std::is_same_v<W, BFloat16>) {
        const auto group = static_cast<std::uint64_t>(at) / 2;
        bits = rounding_bits(step.seed, step.stream, step.step, group).get(static_cast<int>(at % 2), 0);
      }
      store_rounded(kept[at], w, bits);
      if constexpr (!std::is_same_v<T, W>) rounded[at] = static_cast<T>(w);
    }
  });
}

template <class T>
void apply(const KernelCall& call) {
  if (*call.in(MuonApplyIn::bad).as<std::int32_t>() != 0) return;
  T* weight = call.out(MuonApplyOut::weight).as<T>();
  if (call.in(MuonApplyIn::master)) {
    apply<T>(call, call.out(MuonApplyOut::master).as<Accumulator<T>>(), weight);
  } else {
    apply<T, T>(call, weight, nullptr);
  }
}

}  // namespace

void register_muon_cpu(KernelRegistry& registry) {
  const auto add = [&](std::string_view op, auto with_type) {
    registry.add(op, DeviceKind::kCpu, {std::move(with_type), {}});
  };
  add("muon_momentum", [](const KernelCall& call) {
    for_floating(call.in(MuonMomentumIn::gradient).dtype(), [&]<class T>() { momentum<T>(call); });
  });
  add("muon_unit",
      [](const KernelCall& call) { for_floating(call.out(0).dtype(), [&]<class T>() { unit<T>(call); }); });
  add("muon_combine", [](const KernelCall& call) {
    for_floating(call.in(MuonCombineIn::x).dtype(), [&]<class T>() { combine<T>(call); });
  });
  add("muon_apply", [](const KernelCall& call) {
    for_floating(call.in(MuonApplyIn::weight).dtype(), [&]<class T>() { apply<T>(call); });
  });
}

}  // namespace hone
