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

}  // namespace hone
