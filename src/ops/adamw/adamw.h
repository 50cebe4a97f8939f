// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), as torch.optim.AdamW computes it.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct AdamwIn {
  enum : std::size_t { weight, gradient, m, v, master, norm, hyper, bad };
};
struct AdamwOut {
  enum : std::size_t { weight, gradient, m, v, master };
};

struct AdamwAttributes {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  std::int64_t seed = 0;    // of stochastic rounding,
  std::int64_t stream = 0;  // which no two weights share

  template <class Visitor>
  void fields(Visitor& v) {
    v("beta1", beta1);
    v("beta2", beta2);
    v("epsilon", epsilon);
    v("weight_decay", weight_decay);
    v("seed", seed);
    v("stream", stream);
  }
};

// What changes from step to step, in an input [kAdamwHypers]; t counts steps from 1. The rest is reserved.
enum class AdamwHyper : std::uint8_t {
  learning_rate,
  correction1,    // 1 / (1 - beta1^t)
  correction2,    // 1 / sqrt(1 - beta2^t)
  max_grad_norm,  // 0: gradients are not clipped
  step,           // t
};
inline constexpr std::int64_t kAdamwHypers = 8;

// One weight and what belongs to it: f32, or f64 beside a weight of f64. Beside a weight of bf16 the gradient may be
// bf16, and so may m and v, both of them; they are rounded stochastically then (their expectation is the unrounded
// number), and so is the weight where it has no master.
struct AdamwTensors {
  Tensor weight;
  Tensor gradient;
  Tensor m;
  Tensor v;
  Tensor master;  // optional, beside bf16: the weight before it is rounded, to nearest
};

// What all weights of a step share.
struct AdamwStep {
  Tensor norm;   // [1], of all gradients: they are scaled by min(1, max_grad_norm / (norm + 1e-6))
  Tensor hyper;  // [kAdamwHypers]
  Tensor bad;    // i32[1], from guard(): while it is not 0, only the gradient changes
};

// Updates everything in place and returns it as it then stands; the gradient is zero, for the next accumulation.
AdamwTensors adamw(const AdamwTensors& tensors, const AdamwStep& step, const AdamwAttributes& attributes);

}  // namespace hone
