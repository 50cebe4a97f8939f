// Policy-gradient loss of each token: PPO's clipped importance ratio (Schulman et al., 2017) with GRPO's KL penalty
// (Shao et al., "DeepSeekMath", 2024), and CISPO (MiniMax-M1, 2025).
#pragma once

#include <cstddef>
#include <string>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct PolicyTermIn {
  enum : std::size_t { logp, old_logp, ref_logp, advantages };
};
struct PolicyTermOut {
  enum : std::size_t { term, kl, clipped };
};
struct PolicyTermBackwardIn {
  enum : std::size_t { dterm, logp, old_logp, ref_logp, advantages };
};

struct PolicyTermAttributes {
  std::string kind = "clip";  // or "cispo"
  double epsilon = 0.2;
  double epsilon_high = 0.2;  // cispo: the upper bound of the ratio itself
  double delta = 0;           // upper bound of the ratio in the unclipped side; 0: none; must be 0 for cispo
  double beta = 0;            // weight of kl

  template <class Visitor>
  void fields(Visitor& v) {
    v("kind", kind);
    v("epsilon", epsilon);
    v("epsilon_high", epsilon_high);
    v("delta", delta);
    v("beta", beta);
  }
};

// Outputs, each [rows] in logp's dtype.
struct PolicyTerm {
  Tensor term;     // loss of the token
  Tensor kl;       // estimate of the KL divergence from the reference; 0 without ref_logp
  Tensor clipped;  // clip: -1 if advantage < 0 and r < 1 - epsilon, 1 if advantage > 0 and r > 1 + epsilon_high,
                   // otherwise 0; cispo: 1 if advantage > 0 and r > epsilon_high, otherwise 0
};

// Computes the loss of each token from logp, old_logp, ref_logp and advantages, each [rows] in f32 (f64 in programs of
// f64); old_logp and ref_logp may be left out. With A the advantage:
//   r    = exp(logp - old_logp); if old_logp is absent, logp itself, detached, is used: r = 1
//   kl   = exp(ref_logp - logp) - (ref_logp - logp) - 1
//   clip:  term = -min(min(r, delta) A, clip(r, 1 - epsilon, 1 + epsilon_high) A) + beta kl
//   cispo: term = -detached(min(r, epsilon_high)) A logp + beta kl
// Only `term` has a gradient, to logp only, as torch computes it (half of each side where both sides of min are equal).
// A row whose output gradient is 0 gets gradient 0, even if its numbers are not finite. Throws Error if the types or
// the attributes do not fit.
[[nodiscard]] PolicyTerm policy_term(Tensor logp, Tensor old_logp, Tensor ref_logp, Tensor advantages,
                                     const PolicyTermAttributes& attributes);

}  // namespace hone
