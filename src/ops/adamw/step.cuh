// Per-step constants of AdamW and the update of one element, on a GPU.
#pragma once

#include <cmath>

#include "ops/adamw/adamw.h"
#include "ops/adamw/clip.h"
#include "ops/adamw/rounding.h"
#include "ops/cuda_kernel.cuh"

namespace hone {

// Constants that the host knows at launch.
template <class A>
struct AdamwConstants {
  double weight_decay;
  A rest1, beta2, rest2, epsilon;
  std::uint64_t seed;
  std::uint32_t stream;
  bool clears;         // AdamwAttributes::clears
  std::int64_t first;  // AdamwAttributes::first

  AdamwConstants() = default;
  explicit AdamwConstants(const AdamwAttributes& a)
      : weight_decay(a.weight_decay),
        rest1(static_cast<A>(1.0 - a.beta1)),
        beta2(static_cast<A>(a.beta2)),
        rest2(static_cast<A>(1.0 - a.beta2)),
        epsilon(static_cast<A>(a.epsilon)),
        seed(static_cast<std::uint64_t>(a.seed)),
        stream(static_cast<std::uint32_t>(a.stream)),
        clears(a.clears),
        first(a.first) {}

  // m and v after a gradient, which has been clipped.
  [[nodiscard]] __device__ A next_m(A m, A gradient) const { return m + rest1 * (gradient - m); }
  [[nodiscard]] __device__ A next_v(A v, A gradient) const { return beta2 * v + rest2 * gradient * gradient; }
};

// True if the root of a subnormal v, which is below 2^-63, can be taken as 0 without changing a bit of root *
// correction2
// + epsilon, because it is less than half of the last bit of epsilon. correction2 is largest at the first step.
inline bool flushing_is_exact(const AdamwAttributes& a) {
  return 0x1p-63 / std::sqrt(1.0 - a.beta2) < static_cast<float>(a.epsilon) * 0x1p-25;
}

// Constants that are in device memory. One thread reads them once for the whole block: if every warp read these few
// numbers, the whole chip would wait for the one cache line that holds them.
template <class A>
struct AdamwStepNumbers {
  A clip, decay, rate, correction2;
  std::uint32_t step;
  bool bad;

  AdamwStepNumbers() = default;
  __device__ AdamwStepNumbers(const A* hyper, const A* norm, const std::int32_t* is_bad, double weight_decay)
      : clip(clip_factor(hyper[static_cast<int>(AdamwHyper::kMaxGradNorm)], *norm)),
        correction2(hyper[static_cast<int>(AdamwHyper::kCorrection2)]),
        step(static_cast<std::uint32_t>(hyper[static_cast<int>(AdamwHyper::kStep)])),
        bad(*is_bad != 0) {
    const A learning_rate = hyper[static_cast<int>(AdamwHyper::kLearningRate)];
    decay = static_cast<A>(1.0 - static_cast<double>(learning_rate) * weight_decay);
    rate = learning_rate * hyper[static_cast<int>(AdamwHyper::kCorrection1)];
  }

  // kFlushes: subnormal v counts as 0, which changes no bit if flushing_is_exact().
  template <bool kFlushes = false>
  [[nodiscard]] __device__ A next_weight(A weight, A m, A v, A epsilon) const {
    return weight * decay - quotient<kFlushes>(rate * m, root<kFlushes>(v) * correction2 + epsilon);
  }

 private:
  // Square root and quotient within 2 ulp. The exact versions branch, and take the slow branch if a moment is 0.
  template <bool kFlushes>
  static __device__ float root(float value) {
    return kFlushes ? root_flushed(value) : root_fast(value);
  }
  template <bool kFlushes>
  static __device__ float quotient(float a, float b) {
    return kFlushes ? a * reciprocal_fast(b) : __fdividef(a, b);
  }
  template <bool kFlushes>
  static __device__ double root(double value) {
    return sqrt(value);
  }
  template <bool kFlushes>
  static __device__ double quotient(double a, double b) {
    return a / b;
  }
};

// Converts to the stored type; to bf16 by stochastic rounding with 16 random bits.
template <class Stored, class A>
[[nodiscard]] __device__ Stored rounded_for(A value, std::uint32_t bits) {
  if constexpr (std::is_same_v<Stored, __nv_bfloat16>) {
    return __ushort_as_bfloat16(round_stochastically(value, bits));
  } else {
    return value;
  }
}

}  // namespace hone
