// The programs of GRPO.
#pragma once

#include "rl/options.h"
#include "train/loss_program.h"

namespace hone {

// What of the options is compiled into the policy's program.
struct PolicyLossOptions {
  double temperature = 1.0;
  bool cispo = false;  // else the clipped ratio
  ImportanceLevel level = ImportanceLevel::token;
  double epsilon = 0.2;
  double epsilon_high = 0.2;
  double delta = 0;        // 0: none
  double beta = 0;         // 0: no reference model
  bool old_logps = false;  // whether a generation is used more than once: else old = log p, detached
};
[[nodiscard]] PolicyLossOptions policy_loss_options(const GrpoOptions& options, const GrpoBatch& batch);

// What the terms are made of, each [tokens]: f32 (f64 in programs of f64) but for the ids.
struct PolicyTokens {
  Tensor logp;
  Tensor old_logp;    // invalid without old_logps
  Tensor ref_logp;    // invalid without beta
  Tensor advantages;  // 0 leaves a token's policy term out, not its kl
  Tensor targets;     // i32: -1 where nothing is predicted
  Tensor cu_seqlens;  // i32 [documents + 1]
};
struct PolicyTerms {
  Tensor term;  // [tokens]
  Tensor kl;    // [tokens]; invalid without beta
};
// The loss of each token (ops/policy_term). ImportanceLevel::sequence: its ratio is exp of the mean of logp - old_logp
// over the completion (GSPO), and all of its tokens share it.
[[nodiscard]] PolicyTerms policy_terms(const PolicyTokens& tokens, const PolicyLossOptions& loss);

// loss = sum of loss_weights[t] x term(t); accumulates the gradients. Inputs beside those of trace_log_probabilities:
// "loss_weights", "advantages", with old_logps "old_logp", with beta "ref_logp", all f32 [tokens]. Outputs: "loss" [1];
// "logp", "entropy", with beta "kl", [tokens]; the model's own losses and figures (train/model_figures.h).
[[nodiscard]] Program trace_policy(const Model& model, const PolicyLossOptions& loss,
                                   const LossProgramOptions& options);
// The same without gradients: evaluation.
[[nodiscard]] Program trace_policy_evaluation(const Model& model, const PolicyLossOptions& loss,
                                              const LossProgramOptions& options);
// log p of the targets, without gradients: outputs "logp" and "entropy" [tokens].
[[nodiscard]] Program trace_reference(const Model& model, double temperature, const LossProgramOptions& options);

}  // namespace hone
