// The programs of GRPO.
#pragma once

#include "rl/options.h"
#include "train/loss_program.h"

namespace hone {

// What of the options is compiled into the policy's program.
struct PolicyLossOptions {
  double temperature = 1.0;
  double epsilon = 0.2;
  double epsilon_high = 0.2;
  double delta = 0;        // 0: none
  double beta = 0;         // 0: no reference model
  bool old_logps = false;  // whether a generation is used more than once: else old = log p, detached
};
[[nodiscard]] PolicyLossOptions policy_loss_options(const GrpoOptions& options, const GrpoBatch& batch);

// loss = sum of loss_weights[t] x term(t); accumulates the gradients. Inputs beside those of trace_log_probabilities:
// "loss_weights", "advantages", with old_logps "old_logp", with beta "ref_logp", all f32 [tokens]. Outputs: "loss" [1];
// "logp", "entropy", with beta "kl", [tokens].
[[nodiscard]] Program trace_policy(const Model& model, const PolicyLossOptions& loss,
                                   const LossProgramOptions& options);
// log p of the targets, without gradients: output "logp" [tokens].
[[nodiscard]] Program trace_reference(const Model& model, double temperature, const LossProgramOptions& options);

}  // namespace hone
