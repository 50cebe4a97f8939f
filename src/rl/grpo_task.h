// The GRPO training task: generates completions, scores them, and updates the policy that generated them.
//
// Algorithm: Group Relative Policy Optimization of DeepSeekMath (Shao et al., arXiv 2402.03300) and DeepSeek-R1
// (arXiv 2501.12948), as TRL's GRPOTrainer computes it. tests/rl/policy_loss_test.cpp compares loss, gradient and
// metrics with torch in float64.
//
// The parts of a step, in the order in which accumulate() calls them:
//   generate    roll_out (rollout.h): completions of the next prompts, p_it under the weights that sample
//   score       rewards of each completion (reward/reward.h)
//   advantages  A_i (advantages.h)
//   loss        w_i (policy_batch.h), l_it (policy_program.h), and its gradient (ops/policy_term), for the step's
//               micro-batches (policy_runner.h)
//
// Loss of one optimizer step, over its completions i and their tokens t, the end token included:
//
//   loss  = sum_i w_i sum_t l_it
//   l_it  = -c_it min(min(r_it, delta) A_i, clip(r_it, 1 - epsilon, 1 + epsilon_high) A_i) + beta k_it
//           cispo: -c_it stop_gradient(min(r_it, epsilon_high)) A_i log p_it + beta k_it
//   r_it  = p_it / old_it; importance_sampling_level sequence: exp(mean over t of log(p_it / old_it)), shared by all
//           tokens of the completion
//   k_it  = ref_it / p_it - log(ref_it / p_it) - 1
//   A_i   = (R_i - mean of R over the group) / (deviation of R + 1e-4);  R_i = sum_j reward_weights[j] reward_j(i)
//   c_it  = importance correction x (1 if the token passes top_entropy_quantile, otherwise 0)
//   w_i   = 0 if mask_truncated_completions is set and i has no end token, otherwise
//           grpo               1 / (N |o_i|)
//           dr_grpo            1 / (N max_completion_length)
//           bnpo, dapo, cispo  1 / T
//
// p, old and ref are the probabilities of the token under the policy, the policy that sampled it and the reference:
// softmax of logits / temperature over the whole vocabulary. top_p, top_k, min_p and repetition_penalty restrict what
// is drawn and change no probability. Without delta the inner min is r_it. |o_i| is the number of tokens of the
// completion, N the number of completions in the step, masked ones included, and T the number of tokens in the
// completions that are not masked.
//
// Kept:
// - DeepSeekMath, outcome supervision: no critic, advantages relative to the group, ratio clipping, and the KL estimate
//   k inside the loss. loss_type grpo is its equation 3; the default is bnpo.
// - scale_rewards: the deviation (with n - 1) is that of the group, that of all completions of a generation (batch;
//   Liu et al., arXiv 2508.08221), or no division takes place (none).
// - DAPO (arXiv 2503.14476): separate clip bounds and one normaliser for all tokens. Its penalty of long completions is
//   the reward soft_overlong_punishment.
// - Dr. GRPO (arXiv 2503.20783): the constant normaliser. It does not change scale_rewards; the paper's advantages need
//   scale_rewards: none.
// - CISPO (arXiv 2506.13585): the capped ratio as a constant factor, without a lower bound.
// - GSPO (arXiv 2507.18071): the length-normalised ratio of a whole completion, with any loss_type but cispo.
// - Two-sided clipping (INTELLECT-2, arXiv 2505.07291): delta bounds the ratio in the unclipped argument of min. cispo
//   refuses delta.
// - top_entropy_quantile q (arXiv 2506.01939): c_it = 0 below the (1 - q) quantile of the policy's entropy over the
//   unmasked tokens of the step. Such tokens keep their KL term and still count in |o_i| and T.
// - Importance correction (importance.h names the source), by default for rollout: server and max_staleness: the ratio
//   trainer / sampler of a token, or the product of these ratios over the completion; outside of its bounds it is
//   clamped (truncate) or set to 0 (mask). It multiplies the policy term, not the KL term.
// - max_staleness 1, as the one-step-off rollouts of asynchronous trainers (begun_generation.h). With rollout: server
//   the next generation is drawn, whole, by the weights before a step while the step trains. Otherwise, while the last
//   completions of a generation are drawn, the next one is begun. What it has by then is kept as it was drawn, with the
//   log-probabilities of the weights that drew it, and the next weights continue it. Its sampler is thus a mixture,
//   token by token. old is the trainer's probability before the first update, and the importance correction is the
//   ratio to what drew each token.
// - mask_truncated_completions: masked completions have no loss, but their rewards count in the means and deviations of
//   R, and they count in N.
// - num_iterations and steps_per_generation: a generation is read num_iterations times, in the same order. If it serves
//   a single optimizer step, r = 1 in value and only its gradient matters.
// - sync_ref_model (TR-DPO, arXiv 2404.09656): ref = alpha policy + (1 - alpha) ref after every ref_model_sync_steps
//   steps, with alpha = ref_model_mixup_alpha. Log-probabilities of the reference are computed when a generation is
//   made, so a move affects later generations only. With LoRA the reference is the base model and does not move.
//
// Different from TRL:
// - T and the entropy quantile are taken over all micro-batches of an optimizer step. How the step is split into
//   micro-batches therefore changes loss and gradient only by rounding, and bnpo equals dapo.
// - A completion that no reward scores has advantage 0 and is left out of means and deviations; TRL gives it a total
//   of 0.
// - old is what hone's engine computed while sampling, bitwise what the trainer computes (exact_logprobs); TRL runs a
//   forward pass for it. So does hone for rollout: server and for the importance correction.
// - Completions are not shuffled within a generation.
// - Completions without a gradient (advantage 0, no KL term) get no backward pass. Their metrics count as in TRL.
//
// Not implemented: process supervision and learned reward models with replay (DeepSeekMath); the ratio of whole
// completions without length normalisation, as DeepSeek-R1 writes it; DAPO's dynamic sampling (groups with equal
// rewards stay in the step with advantage 0; frac_reward_zero_std is their share); GSPO-token; an entropy bonus;
// rollouts that are more than a generation old (TRL's max_staleness counts updates); TRL's loss types sapo, luspo and
// vespo; rewards normalised one by one before they are added (GDPO); completions of several turns with tools or
// environments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "rl/begun_generation.h"
#include "rl/grpo_metrics.h"
#include "rl/grpo_run.h"
#include "rl/policy_runner.h"
#include "rl/rollout.h"
#include "rl/sampler_comparison.h"
#include "train/trainer.h"

namespace hone {

class GrpoTask final : public TrainingTask {
 public:
  // The workspace must have the programs of trace_run(run) and be allocated. All arguments must outlive the task.
  GrpoTask(const GrpoRun& run, Workspace& workspace, RolloutSource& source);

  // Runs the programs of the loss, so that the times of the first steps are those of all. Gradients that it leaves are
  // to be discarded (PolicyRunner::prepare()).
  void prepare() {
    workspace_.enter(Region::kTrain);
    runner_.prepare();
  }
  // Generates and scores completions if the step needs new ones, then adds the gradient of its loss.
  MetricValues accumulate(std::int64_t step) override;
  // Returns the names of the mean reward and its deviation, the mean of each reward, the mean length of completions
  // and the share of truncated completions.
  std::vector<std::string> shown_metrics() const override;
  std::string idle_cause(const MetricValues& values, double grad_norm) const override;
  void after_update(std::int64_t step) override;
  double epoch() const override;
  std::int64_t tokens_seen() const override { return tokens_seen_; }
  double flops() const override { return flops_; }
  // Samples num_generations completions of every held-out prompt as in training, with the same seeds each time. Returns
  // the metrics of a step with the prefix "eval_", or nothing without held-out prompts. Weights, data position and
  // num_tokens stay unchanged.
  MetricValues evaluate(std::int64_t step) override;
  Json last_batch() const override;
  Json state() const override;
  std::vector<TaskTensor> state_tensors() const override { return begun_tensors_; }
  void restore(const Json& state, std::span<const TaskTensor> tensors) override;

  // Returns the number of batches that one pass over the prompts takes.
  [[nodiscard]] static std::int64_t micro_steps_per_epoch(const GrpoOptions& options, const GrpoBatch& batch,
                                                          std::int64_t prompts);

 private:
  // The batches of a step, each of per_device_train_batch_size samples.
  struct StepSamples {
    std::vector<Rollout> rollouts;  // generations made for the step; usually one or none
    std::vector<bool> fresh;        // [batches] true if the current weights sampled it, so that the metrics may compare
                                    // log-probabilities

    [[nodiscard]] double weights_seconds() const {
      double seconds = 0;
      for (const Rollout& rollout : rollouts) seconds += rollout.weights_seconds;
      return seconds;
    }
  };
  // Fills step_samples_ with the samples of the next batches, and makes a new generation whenever the previous
  // one is used up.
  [[nodiscard]] StepSamples choose_samples();
  // Makes the next generation, stores its samples in samples_ and returns it. If the options ask for it, begins the one
  // after it.
  [[nodiscard]] Rollout generate();
  // Returns the prompts of a generation, and the sampling seeds of its completions. use: "rollout" and the number of
  // the generation, or "evaluation" and 0.
  [[nodiscard]] std::vector<std::uint32_t> prompts_of(std::int64_t generation);
  [[nodiscard]] std::function<std::uint64_t(std::size_t)> seeds_of(std::string_view use, std::int64_t number) const;
  // Returns true if the next generation is to be begun while the current one is drawn.
  [[nodiscard]] bool begins_ahead() const;
  // Returns what the completions of these prompts have already, [completions]; nothing if none has begun.
  [[nodiscard]] std::span<const DrawnTokens> begun_completions(std::span<const std::uint32_t> chosen) const;
  void set_begun(BegunGeneration begun);
  // Waits for the generation that servers draw ahead, if there is one, and keeps it as begun.
  void finish_ahead();
  // Returns this rank's share of prompts.
  [[nodiscard]] RolloutPrompts own_part(const RolloutPrompts& all) const;
  // Samples and scores completions, together with the other ranks of a job, each of which takes its share.
  // next: as in roll_out().
  [[nodiscard]] Rollout sample(const RolloutPrompts& now, const RolloutPrompts* next = nullptr);
  // If the options compare trainer and sampler, does so.
  void correct_importance(Rollout& rollout, SamplerComparison& comparison) const;
  // Fills ref_logps if there is a reference model.
  void add_reference_logps(std::span<PolicySample> samples) const;
  // Returns the log-probabilities of the completion tokens, [samples][completion tokens], computed by the program of
  // that name.
  [[nodiscard]] std::vector<std::vector<float>> target_logps(const char* program,
                                                             std::span<const PolicySample> samples) const;
  // Writes the completions of a step's generations to output_dir/completions/NAME.jsonl, and prints them if
  // log_completions is set. Without an output_dir, as in benchmarks, it does nothing.
  void report(std::span<const Rollout> rollouts, const std::string& name, std::int64_t step) const;

  // Returns this rank's samples of a step with their loss weights (w_i above), which depend on all of them.
  // own: indices into `samples`.
  [[nodiscard]] PolicyBatch weigh(std::span<const PolicySample> samples, std::span<const std::size_t> own) const;
  // Returns the completions of a batch of all ranks.
  [[nodiscard]] std::int64_t batch_completions() const { return run_.batch.size * run_.job.data_size(); }
  // Returns the indices of this rank's samples in the batches of a step, of which each rank has its part.
  [[nodiscard]] std::vector<std::size_t> own_samples(std::span<const PolicySample> samples) const;
  // Removes the policy term of the tokens of a step that top_entropy_quantile excludes.
  void drop_low_entropy(PolicyBatch& step) const;

  // Returns the loss, then the metrics in `rollout`, then the figures of the loss program.
  [[nodiscard]] MetricValues metrics(const PolicyTotals& totals, const NamedValues& rollout) const;
  // Throws Defect if the log-probability of a sampled token differs between rollout and trainer: by `difference`.
  void check_exact(double difference) const;

  const GrpoRun& run_;
  Workspace& workspace_;
  RolloutSource& source_;
  PolicyRunner runner_;
  std::int64_t step_ = 0;  // optimizer steps done
  ChunkOrder order_;
  std::int64_t micro_steps_ = 0;  // batches trained on
  std::int64_t generations_ = 0;  // generations made
  std::int64_t updates_since_generation_ = 0;
  BegunGeneration begun_;                  // what the next generation has already
  bool is_ahead_ = false;                  // servers draw the next generation, whose prompts begun_ names
  std::vector<TaskTensor> begun_tensors_;  // the same for checkpoints
  std::int64_t tokens_seen_ = 0;
  double flops_ = 0;
  std::vector<PolicySample> samples_;       // the current generation, of all ranks
  std::vector<PolicySample> step_samples_;  // samples of the last step, of all ranks, its batches end to end
  NamedValues last_rollout_metrics_;        // rollout_metrics of the last step that made a generation
};

}  // namespace hone
