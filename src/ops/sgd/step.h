// Per-step constants of SGD and the update of one element, shared by all devices.
#pragma once

#include <cstdint>

#include "ops/adamw/clip.h"
#include "ops/sgd/sgd.h"

namespace hone {

template <class A>
struct SgdNumbers {
  A clip, rate, decay, momentum, rest;
  bool first, nesterov;
  std::uint64_t seed;
  std::uint32_t stream, step;

  constexpr SgdNumbers(const SgdAttributes& attributes, const A* hyper, A norm)
      : clip(clip_factor(hyper[static_cast<int>(AdamwHyper::kMaxGradNorm)], norm)),
        rate(hyper[static_cast<int>(AdamwHyper::kLearningRate)]),
        decay(static_cast<A>(attributes.weight_decay)),
        momentum(static_cast<A>(attributes.momentum)),
        rest(static_cast<A>(1.0 - attributes.dampening)),
        first(hyper[static_cast<int>(AdamwHyper::kStep)] == A(1)),
        nesterov(attributes.nesterov),
        seed(static_cast<std::uint64_t>(attributes.seed)),
        stream(static_cast<std::uint32_t>(attributes.stream)),
        step(static_cast<std::uint32_t>(hyper[static_cast<int>(AdamwHyper::kStep)])) {}

  [[nodiscard]] constexpr A gradient(A raw, A weight) const { return raw * clip + decay * weight; }
  [[nodiscard]] constexpr A next_momentum(A before, A g) const { return first ? g : momentum * before + rest * g; }
  [[nodiscard]] constexpr A next_weight(A weight, A g, A next) const {
    return weight - rate * (nesterov ? g + momentum * next : next);
  }
};

}  // namespace hone
