// One element of swiglu and of its backward pass on a GPU, which the operations that it is fused with share.
#pragma once

#include "ops/sigmoid.cuh"

namespace hone {

// Returns silu(gate) * up, rounded once.
template <class T>
[[nodiscard]] __device__ T swiglu_element(T gate, T up) {
  const auto g = widened(gate);
  return narrowed<T>(g * sigmoid<T>(g) * widened(up));
}

// Computes dgate = dy up s (1 + gate (1 - s)) and dup = dy gate s, where s = sigmoid(gate), each rounded once.
template <class T>
__device__ void swiglu_gradient_element(T dy, T gate, T up, T& dgate, T& dup) {
  using A = CudaAccumulator<T>;
  const A g = widened(gate);
  const A s = sigmoid<T>(g);
  dgate = narrowed<T>(widened(dy) * widened(up) * s * (A(1) + g * (A(1) - s)));
  dup = narrowed<T>(widened(dy) * g * s);
}

// True if a number of the pairs of bf16 is one that sigmoid_above_steep() does not take.
template <int kRows>
[[nodiscard]] __device__ bool has_steep(const std::uint32_t (&gates)[kRows][4]) {
  std::uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) most = __vmaxu2(most, gates[i][j]);
  }
  return (most & 0xFFFFu) >= kSteepBits || most >> 16 >= kSteepBits;
}

// Pairs of bf16 as f32, and back, rounded to nearest even.
[[nodiscard]] __device__ inline float2 widened_pair(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
}
[[nodiscard]] __device__ inline std::uint32_t narrowed_pair(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  std::uint32_t pair;
  memcpy(&pair, &both, sizeof(pair));
  return pair;
}

// sigmoid of a gate; kSteep: of any, otherwise of one above -87. The bits are the same.
template <bool kSteep>
[[nodiscard]] __device__ float sigmoid_of_gate(float gate) {
  if constexpr (kSteep) {
    return sigmoid<__nv_bfloat16>(gate);
  } else {
    return sigmoid_above_steep(gate);
  }
}

// swiglu_element() of two elements.
template <bool kSteep>
[[nodiscard]] __device__ std::uint32_t swiglu_pair(std::uint32_t gate, std::uint32_t up) {
  const float2 g = widened_pair(gate);
  const float2 u = widened_pair(up);
  return narrowed_pair(g.x * sigmoid_of_gate<kSteep>(g.x) * u.x, g.y * sigmoid_of_gate<kSteep>(g.y) * u.y);
}

// swiglu_gradient_element() of two elements.
template <bool kSteep>
__device__ void swiglu_gradient_pair(std::uint32_t dy, std::uint32_t gate, std::uint32_t up, std::uint32_t& dgate,
                                     std::uint32_t& dup) {
  const float2 d = widened_pair(dy);
  const float2 g = widened_pair(gate);
  const float2 u = widened_pair(up);
  const float2 s{sigmoid_of_gate<kSteep>(g.x), sigmoid_of_gate<kSteep>(g.y)};
  dgate = narrowed_pair(d.x * u.x * s.x * (1.0f + g.x * (1.0f - s.x)), d.y * u.y * s.y * (1.0f + g.y * (1.0f - s.y)));
  dup = narrowed_pair(d.x * g.x * s.x, d.y * g.y * s.y);
}

}  // namespace hone
