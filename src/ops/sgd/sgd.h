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
  std::int64_t seed = 0;    // of stochastic rounding,
  std::int64_t stream = 0;  // which no two weights share

  template <class Visitor>
  void fields(Visitor& v) {
    v("momentum", momentum);
    v("dampening", dampening);
    v("nesterov", nesterov);
    v("weight_decay", weight_decay);
    v("seed", seed);
    v("stream", stream);
  }
};

// The operands, in order.
struct SgdIn {
  enum : std::size_t { weight, gradient, momentum, master, norm, hyper, bad };
};
struct SgdOut {
  enum : std::size_t { weight, gradient, momentum, master };
};
// Where the master weight stands among inputs and outputs: without momentum it takes momentum's place, so that what is
// not given comes last.
[[nodiscard]] constexpr std::size_t sgd_master(const SgdAttributes& attributes) {
  return attributes.momentum != 0 ? SgdIn::master : SgdIn::momentum;
}

// One weight and what belongs to it. The gradient may be bf16 beside a weight of bf16; a weight of bf16 without a
// master is rounded stochastically.
struct SgdTensors {
  Tensor weight;
  Tensor gradient;
  Tensor momentum;  // f32 (f64); where attributes.momentum is 0, none
  Tensor master;    // optional, beside bf16
};

//   g = clipped gradient + weight_decay x weight
//   momentum = g at the first step, then attributes.momentum x momentum + (1 - dampening) g
//   weight -= learning_rate x (nesterov: g + attributes.momentum x momentum; with momentum: momentum; else g)
// in place; the gradient is zero afterwards. Of the step's numbers it reads learning_rate, max_grad_norm and step.
SgdTensors sgd(const SgdTensors& tensors, const AdamwStep& step, const SgdAttributes& attributes);

}  // namespace hone
