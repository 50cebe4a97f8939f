// Log-probabilities of given tokens: the output head and the log-softmax over the vocabulary in one operation, a block
// of rows and a chunk of the vocabulary at a time, so that the logits are never whole in memory.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct LinearLogprobsIn {
  enum : std::size_t { x, weight, targets };
};
struct LinearLogprobsOut {
  enum : std::size_t { logp, entropy, hit, lse };
};
struct LinearLogprobsBackwardIn {
  enum : std::size_t { dlogp, x, weight, targets, lse, dweight };
};
struct LinearLogprobsBackwardOut {
  enum : std::size_t { dx, dweight };
};
struct LinearLogprobsJointIn {
  enum : std::size_t { dlogp, x, weight, targets, dweight };
};
struct LinearLogprobsJointOut {
  enum : std::size_t { logp, entropy, hit, lse, dx, dweight };
};

struct LinearLogprobsAttributes {
  double temperature = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v("temperature", temperature);
  }
};

// Each [rows], in f32 (f64 for f64).
struct LinearLogprobs {
  Tensor logp;     // of the target
  Tensor entropy;  // of the distribution, in nats
  Tensor hit;      // 1 where the target is the lowest id among those with the largest logit, else 0
  Tensor lse;      // log of the sum of exp(logit / temperature), kept for the backward pass
};

// x [rows, hidden], weight [vocab, hidden] of one dtype, targets i32[rows] -> the distribution softmax(x weight^T /
// temperature), from logits in f32 (f64 for f64) as linear(x, weight, {}, {.f32_output = true}) gives them, by
// log_softmax.h. A row whose target is negative has no target: it costs nothing and is 0 everywhere. The gradient comes
// from logp alone; entropy and hit have none. A row's numbers and its dx do not depend on other rows.
//
// Where the gradient of logp does not depend on logp (a loss that is linear in it), fusion joins both passes into
// linear_logprobs_joint, which computes the logits once instead of twice.
[[nodiscard]] LinearLogprobs linear_logprobs(Tensor x, Tensor weight, Tensor targets,
                                             const LinearLogprobsAttributes& attributes = {});

}  // namespace hone
