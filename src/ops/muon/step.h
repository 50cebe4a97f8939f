// Per-step constants of Muon and the update of one element, shared by all devices.
#pragma once

#include <cstdint>

#include "ops/adamw/clip.h"
#include "ops/muon/muon.h"

namespace hone {

template <class A>
struct MuonMomentumNumbers {
  A clip, rest;
  bool nesterov;

  constexpr MuonMomentumNumbers(double momentum, bool is_nesterov, const A* hyper, A norm)
      : clip(clip_factor(hyper[static_cast<int>(AdamwHyper::kMaxGradNorm)], norm)),
        rest(static_cast<A>(1.0 - momentum)),
        nesterov(is_nesterov) {}

  [[nodiscard]] constexpr A next_momentum(A before, A gradient) const { return before + rest * (gradient - before); }
  [[nodiscard]] constexpr A direction(A next, A gradient) const {
    return nesterov ? next + rest * (gradient - next) : next;
  }
};

template <class A>
struct MuonApplyNumbers {
  A decay, rate;
  std::uint64_t seed;
  std::uint32_t stream, step;

  constexpr MuonApplyNumbers(const MuonApplyAttributes& attributes, const A* hyper)
      : decay(static_cast<A>(1.0 - rate_of(attributes, hyper) * attributes.weight_decay)),
        rate(static_cast<A>(rate_of(attributes, hyper) * attributes.rate_scale)),
        seed(static_cast<std::uint64_t>(attributes.seed)),
        stream(static_cast<std::uint32_t>(attributes.stream)),
        step(static_cast<std::uint32_t>(hyper[static_cast<int>(AdamwHyper::kStep)])) {}

  [[nodiscard]] constexpr A next_weight(A weight, A move) const { return weight * decay - rate * move; }

 private:
  [[nodiscard]] static constexpr double rate_of(const MuonApplyAttributes& attributes, const A* hyper) {
    return static_cast<double>(hyper[static_cast<int>(AdamwHyper::kLearningRate)]) * attributes.rate_ratio;
  }
};

}  // namespace hone
