// Log-probabilities of given tokens: the output head and the log-softmax over the vocabulary as one operation. It
// computes a block of rows or a chunk of the vocabulary at a time, so that the logits are never all in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
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

// Attributes of linear_logprobs_part and its backward pass, which one rank of a tensor group runs on its rows of the
// weight.
struct LinearLogprobsPartAttributes {
  double temperature = 1;
  std::int64_t first = 0;  // token of the first of these rows
  std::int64_t ranks = 1;  // of the group; rank r has the rows from r x rows on

  template <class Visitor>
  void fields(Visitor& v) {
    v("temperature", temperature);
    v("first", first);
    v("ranks", ranks);
  }
};

// Outputs, each [rows] in f32 (f64 for f64).
struct LinearLogprobs {
  Tensor logp;     // log-probability of the target
  Tensor entropy;  // entropy of the distribution, in nats
  Tensor hit;      // 1 if the target is the lowest id among those with the largest logit, otherwise 0
  Tensor lse;      // log of the sum of exp(logit / temperature), kept for the backward pass
};

// Evaluates the distribution softmax(x weight^T / temperature) of each row by log_softmax.h.
//   x        [rows, hidden]
//   weight   [vocab, hidden], of x's dtype
//   targets  i32 [rows]; a negative entry means that the row has no target: all its outputs and its dx are 0
// The logits are those of linear(x, weight, {}, {.f32_output = true}): f32 (f64 for f64). Only logp has a gradient. A
// row's outputs and dx do not depend on other rows. Throws Error if the types do not fit or the temperature is not
// positive.
//
// If the gradient of logp does not depend on logp (a loss that is linear in it), fusion joins both passes into
// linear_logprobs_joint, which computes the logits once instead of twice.
[[nodiscard]] LinearLogprobs linear_logprobs(Tensor x, Tensor weight, Tensor targets,
                                             const LinearLogprobsAttributes& attributes = {});

// Returns the same for a vocabulary whose rows are divided over a tensor group; targets are tokens of the whole
// vocabulary. Each rank computes the statistics of its rows, which all exchange and merge in the order of ranks
// (merge_parts.h), so that all have the same bits. dx is the addend of this rank's rows. Communicates.
[[nodiscard]] LinearLogprobs linear_logprobs_part(Tensor x, Tensor weight, Tensor targets,
                                                  const LinearLogprobsPartAttributes& attributes);

}  // namespace hone
