// Per-step constants of AdamW and the update of one element, on the CPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "ops/adamw/adamw.h"
#include "ops/adamw/clip.h"
#include "ops/adamw/rounding.h"

namespace hone {

// Constants of one step, from attributes, hyper and the norm of the gradients.
template <class A>
struct AdamwNumbers {
  A clip, decay, rate, correction2, rest1, beta2, rest2, epsilon;
  std::uint64_t seed;
  std::uint32_t stream, step;
  std::int64_t first;  // AdamwAttributes::first

  AdamwNumbers(const AdamwAttributes& attributes, const A* hyper, A norm)
      : clip(clip_factor(hyper[static_cast<std::size_t>(AdamwHyper::kMaxGradNorm)], norm)),
        correction2(hyper[static_cast<std::size_t>(AdamwHyper::kCorrection2)]),
        rest1(static_cast<A>(1.0 - attributes.beta1)),
        beta2(static_cast<A>(attributes.beta2)),
        rest2(static_cast<A>(1.0 - attributes.beta2)),
        epsilon(static_cast<A>(attributes.epsilon)),
        seed(static_cast<std::uint64_t>(attributes.seed)),
        stream(static_cast<std::uint32_t>(attributes.stream)),
        step(static_cast<std::uint32_t>(hyper[static_cast<std::size_t>(AdamwHyper::kStep)])),
        first(attributes.first) {
    const A learning_rate = hyper[static_cast<std::size_t>(AdamwHyper::kLearningRate)];
    decay = static_cast<A>(1.0 - static_cast<double>(learning_rate) * attributes.weight_decay);
    rate = learning_rate * hyper[static_cast<std::size_t>(AdamwHyper::kCorrection1)];
  }

  // m and v after a gradient, which has been clipped.
  [[nodiscard]] A next_m(A m, A gradient) const { return m + rest1 * (gradient - m); }
  [[nodiscard]] A next_v(A v, A gradient) const { return beta2 * v + rest2 * gradient * gradient; }
  [[nodiscard]] A next_weight(A weight, A m, A v) const {
    const A change = rate * m / (std::sqrt(v) * correction2 + epsilon);
    return weight * decay - change;
  }
};

// Stores a value; to bf16 it is rounded stochastically with 16 random bits.
template <class Stored, class A>
void store_rounded(Stored& to, A value, std::uint32_t bits) {
  if constexpr (std::is_same_v<Stored, BFloat16>) {
    to.bits = round_stochastically(value, bits);
  } else {
    to = value;
  }
}

}  // namespace hone
