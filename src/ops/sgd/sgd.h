// Stochastic gradient descent with momentum, as torch.optim.SGD computes it.
#pragma once

#include <cstddef>

#include "ops/adamw/adamw.h"

namespace hone {

struct SgdAttributes {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient, not decoupled
  std::int64_t seed = 0;    // of stochastic rounding
  std::int64_t stream = 0;  // of stochastic rounding; different for each weight
  bool clears = true;       // as AdamwAttributes::clears

  template <class Visitor>
  void fields(Visitor& v) {
    v("momentum", momentum);
    v("dampening", dampening);
    v("nesterov", nesterov);
    v("weight_decay", weight_decay);
    v("seed", seed);
    v("stream", stream);
    v("clears", clears);
  }
};

// Indices of the inputs and outputs.
struct SgdIn {
  enum : std::size_t { weight, gradient, momentum, master, norm, hyper, bad };
};
struct SgdOut {
  enum : std::size_t { weight, gradient, momentum, master };
};
// Index of the master weight among inputs and outputs. Without momentum it takes momentum's index, so that absent
// tensors come last.
[[nodiscard]] constexpr std::size_t sgd_master(const SgdAttributes& attributes) {
  return attributes.momentum != 0 ? SgdIn::master : SgdIn::momentum;
}

// A weight and its optimizer state. The gradient of a bf16 weight may be bf16 too; a bf16 weight without a master is
// rounded stochastically.
struct SgdTensors {
  Tensor weight;
  Tensor gradient;
  Tensor momentum;  // f32 (f64); none if attributes.momentum is 0
  Tensor master;    // f32 copy of a bf16 weight, optional
};

// Appends the update of a weight, in place; with attributes.clears its gradient is zero afterwards:
//   g = clipped gradient + weight_decay x weight
//   momentum = g at the first step, then attributes.momentum x momentum + (1 - dampening) g
//   weight -= learning_rate x d, where d = g + attributes.momentum x momentum with nesterov, momentum with momentum
//   alone, and g without momentum
// Of step.hyper it reads learning_rate, max_grad_norm and step.
SgdTensors sgd(const SgdTensors& tensors, const AdamwStep& step, const SgdAttributes& attributes);

}  // namespace hone
