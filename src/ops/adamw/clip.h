// Gradient clipping by the global norm, shared by all devices.
#pragma once

namespace hone {

// Factor of the gradients: min(1, max_norm / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_; 1 if max_norm is 0.
template <class A>
[[nodiscard]] constexpr A clip_factor(A max_norm, A norm) {
  if (!(max_norm > A(0))) return A(1);
  const A share = max_norm / (norm + A(1e-6));
  return share < A(1) ? share : A(1);
}

}  // namespace hone
