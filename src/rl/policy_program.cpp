#include "rl/policy_program.h"

#include "ops/add/add.h"
#include "ops/document_mean/document_mean.h"
#include "ops/fill/fill.h"
#include "ops/policy_term/policy_term.h"
#include "ops/scale/scale.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace hone {
namespace {

Program trace_loss(const Model& model, const PolicyLossOptions& loss, const LossProgramOptions& options,
                   bool trainable) {
  LossTrace trace;
  trace_log_probabilities(trace, model, options.capacity,
                          {.temperature = loss.temperature, .trainable = trainable, .learns = true});
  Program& program = trace.program;
  const Type per_token{DType::kF32, {{options.capacity.tokens, Count::tokens}}};
  const Tensor weights = program.input("loss_weights", per_token);
  const PolicyTerms terms = policy_terms({.logp = trace.logp,
                                          .old_logp = loss.old_logps ? program.input("old_logp", per_token) : Tensor(),
                                          .ref_logp = loss.beta != 0 ? program.input("ref_logp", per_token) : Tensor(),
                                          .advantages = program.input("advantages", per_token),
                                          .targets = program.tensor(program.find(Role::kInput, "targets")),
                                          .cu_seqlens = program.tensor(program.find(Role::kInput, "cu_seqlens"))},
                                         loss);
  program.output("loss", with_model_losses(weighted_sum(terms.term, weights), trace.losses, weights));
  program.output("logp", trace.logp);
  program.output("entropy", trace.entropy);
  if (terms.kl) program.output("kl", terms.kl);
  output_statistics(program, trace.statistics);
  program = model.adapted(std::move(program), {.trainable = trainable});
  const Compiler compiler(options.compile);
  return trainable ? compiler.training(std::move(program), "loss") : compiler.inference(std::move(program));
}

}  // namespace

PolicyLossOptions policy_loss_options(const GrpoOptions& options, const GrpoBatch& batch) {
  return {.temperature = options.temperature,
          .cispo = options.loss_type == GrpoLoss::kCispo,
          .level = options.importance_sampling_level,
          .epsilon = options.epsilon,
          .epsilon_high = options.epsilon_high.value_or(options.epsilon),
          .delta = options.delta.value_or(0),
          .beta = options.beta,
          .old_logps = options.num_iterations > 1 || batch.steps_per_generation > options.gradient_accumulation_steps};
}

PolicyTerms policy_terms(const PolicyTokens& tokens, const PolicyLossOptions& loss) {
  PolicyTermAttributes attributes{.kind = loss.cispo ? "cispo" : "clip",
                                  .epsilon = loss.epsilon,
                                  .epsilon_high = loss.epsilon_high,
                                  .delta = loss.delta};
  Program& program = tokens.logp.program();
  const auto nought = [&] { return fill(program, tokens.logp.type(), 0.0); };
  PolicyTerm policy;
  if (loss.level == ImportanceLevel::kToken) {
    attributes.beta = loss.beta;
    policy = policy_term(tokens.logp, tokens.old_logp, tokens.ref_logp, tokens.advantages, attributes);
    return {policy.term, loss.beta != 0 ? policy.kl : Tensor()};
  }
  // GSPO: policy_term gets the mean log-ratio of the completion as logp and 0 as old_logp, so all tokens share one
  // ratio (without old_logp it is 1). The KL estimate stays per token: a second term with advantage 0 adds it.
  const Tensor difference = tokens.old_logp ? tokens.logp + scale(tokens.old_logp, -1.0) : tokens.logp;
  policy = policy_term(document_mean(difference, tokens.targets, tokens.cu_seqlens),
                       tokens.old_logp ? nought() : Tensor(), {}, tokens.advantages, attributes);
  if (loss.beta == 0) return {policy.term, {}};
  const PolicyTerm penalty = policy_term(tokens.logp, {}, tokens.ref_logp, nought(), {.beta = loss.beta});
  return {policy.term + penalty.term, penalty.kl};
}

Program trace_policy(const Model& model, const PolicyLossOptions& loss, const LossProgramOptions& options) {
  return trace_loss(model, loss, options, true);
}

Program trace_policy_evaluation(const Model& model, const PolicyLossOptions& loss, const LossProgramOptions& options) {
  return trace_loss(model, loss, options, false);
}

Program trace_target_logps(const Model& model, double temperature, const LossProgramOptions& options, bool adapter) {
  LossTrace trace;
  trace_log_probabilities(trace, model, options.capacity, {.temperature = temperature});
  trace.program.output("logp", trace.logp);
  trace.program.output("entropy", trace.entropy);
  return Compiler(options.compile).inference(model.adapted(std::move(trace.program), {.adapter = adapter}));
}

}  // namespace hone
