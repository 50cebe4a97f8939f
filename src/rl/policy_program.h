// Traces the programs of GRPO: the policy loss with and without gradients, and log-probabilities of given tokens.
#pragma once

#include "rl/options.h"
#include "train/loss_program.h"

namespace hone {

// Options that are compiled into the policy program.
struct PolicyLossOptions {
  double temperature = 1.0;
  bool cispo = false;  // false: clipped ratio
  ImportanceLevel level = ImportanceLevel::kToken;
  double epsilon = 0.2;
  double epsilon_high = 0.2;
  double delta = 0;        // 0: none
  double beta = 0;         // 0: no reference model
  bool old_logps = false;  // a generation serves several optimizer steps; otherwise old_logp is logp, detached
};
[[nodiscard]] PolicyLossOptions policy_loss_options(const GrpoOptions& options, const GrpoBatch& batch);

// Operands of the policy loss, each [tokens] in f32 (f64 in programs of f64) except the integer ones.
struct PolicyTokens {
  Tensor logp;
  Tensor old_logp;    // invalid without old_logps
  Tensor ref_logp;    // invalid without beta
  Tensor advantages;  // 0 removes the policy term of a token, not its kl
  Tensor targets;     // i32; -1 if nothing is predicted
  Tensor cu_seqlens;  // i32 [documents + 1]
};
struct PolicyTerms {
  Tensor term;  // [tokens] loss of the token
  Tensor kl;    // [tokens] estimate of the KL divergence from the reference; invalid without beta
};
// Computes the loss of each token (ops/policy_term). With ImportanceLevel::kSequence all tokens of a completion share
// one ratio, exp of the mean of logp - old_logp over the completion (GSPO).
[[nodiscard]] PolicyTerms policy_terms(const PolicyTokens& tokens, const PolicyLossOptions& loss);

// Traces loss = sum over tokens of loss_weights[t] x term(t), and the accumulation of its gradients.
// Inputs in addition to those of trace_log_probabilities, all f32 [tokens]: "loss_weights", "advantages", "old_logp"
// (if old_logps), "ref_logp" (if beta is not 0).
// Outputs: "loss" [1]; "logp", "entropy" and (if beta is not 0) "kl", each [tokens]; the losses and statistics of the
// model (train/model_figures.h).
[[nodiscard]] Program trace_policy(const Model& model, const PolicyLossOptions& loss,
                                   const LossProgramOptions& options);
// The same without gradients, for evaluation.
[[nodiscard]] Program trace_policy_evaluation(const Model& model, const PolicyLossOptions& loss,
                                              const LossProgramOptions& options);
// Traces log-probabilities of the targets without gradients. Outputs: "logp" and "entropy", each [tokens]. adapter:
// false leaves the model's adapter out, if it has one.
[[nodiscard]] Program trace_target_logps(const Model& model, double temperature, const LossProgramOptions& options,
                                         bool adapter = true);

}  // namespace hone
