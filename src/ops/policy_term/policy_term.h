// The loss of a token under a policy gradient: PPO's clipped ratio (Schulman et al., 2017) with GRPO's penalty (Shao et
// al., "DeepSeekMath", 2024), and CISPO (MiniMax-M1, 2025).
#pragma once

#include <cstddef>
#include <string>

#include "program/program.h"

namespace hone {

// The operands, in order.
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
  double epsilon_high = 0.2;  // cispo: the cap of the ratio itself
  double delta = 0;           // upper bound of the ratio where it is not clipped; 0: none; not for cispo
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

// Each [rows], in logp's type.
struct PolicyTerm {
  Tensor term;
  Tensor kl;       // 0 without ref_logp
  Tensor clipped;  // -1: advantage < 0 and r < 1 - epsilon; 1: advantage > 0 and r > 1 + epsilon_high; else 0.
                   // cispo: 1 where advantage > 0 and r > epsilon_high
};

// logp, old_logp, ref_logp and advantages [rows], f32 (f64 in programs of f64); old_logp and ref_logp may be left out.
//   r    = exp(logp - old_logp); without old_logp, that of logp itself, detached: r = 1
//   kl   = exp(ref_logp - logp) - (ref_logp - logp) - 1
//   clip:  term = -min(min(r, delta) A, clip(r, 1 - epsilon, 1 + epsilon_high) A) + beta kl
//   cispo: term = -detached(min(r, epsilon_high)) A logp + beta kl
// The gradient is that of `term` to logp alone, as torch gives it (half of each side where the two of min are equal); a
// row whose gradient is 0 passes on 0 whatever its numbers.
[[nodiscard]] PolicyTerm policy_term(Tensor logp, Tensor old_logp, Tensor ref_logp, Tensor advantages,
                                     const PolicyTermAttributes& attributes);

}  // namespace hone
