#include "rl/policy_program.h"

#include "ops/policy_term/policy_term.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace hone {

PolicyLossOptions policy_loss_options(const GrpoOptions& options, const GrpoBatch& batch) {
  return {.temperature = options.temperature,
          .epsilon = options.epsilon,
          .epsilon_high = options.epsilon_high.value_or(options.epsilon),
          .delta = options.delta.value_or(0),
          .beta = options.beta,
          .old_logps = options.num_iterations > 1 || batch.steps_per_generation > options.gradient_accumulation_steps};
}

Program trace_policy(const Model& model, const PolicyLossOptions& loss, const LossProgramOptions& options) {
  LossTrace trace;
  trace_log_probabilities(trace, model, options.capacity, true, loss.temperature);
  Program& program = trace.program;
  const Type per_token{DType::f32, {{options.capacity.tokens, Count::tokens}}};
  const Tensor weights = program.input("loss_weights", per_token);
  const Tensor advantages = program.input("advantages", per_token);
  const Tensor old_logp = loss.old_logps ? program.input("old_logp", per_token) : Tensor();
  const Tensor ref_logp = loss.beta != 0 ? program.input("ref_logp", per_token) : Tensor();
  const PolicyTerm term =
      policy_term(trace.logp, old_logp, ref_logp, advantages,
                  {.epsilon = loss.epsilon, .epsilon_high = loss.epsilon_high, .delta = loss.delta, .beta = loss.beta});
  program.output("loss", weighted_sum(term.term, weights));
  program.output("logp", trace.logp);
  program.output("entropy", trace.entropy);
  if (ref_logp) program.output("kl", term.kl);
  return finish_loss(std::move(program), "loss", options);
}

Program trace_reference(const Model& model, double temperature, const LossProgramOptions& options) {
  LossTrace trace;
  trace_log_probabilities(trace, model, options.capacity, false, temperature);
  trace.program.output("logp", trace.logp);
  return finish_loss(std::move(trace.program), nullptr, options);
}

}  // namespace hone
