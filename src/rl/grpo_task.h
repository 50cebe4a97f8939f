// Group relative policy optimisation: rollouts and updates on the same weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "rl/grpo_metrics.h"
#include "rl/grpo_run.h"
#include "rl/policy_program.h"
#include "rl/rollout.h"
#include "train/trainer.h"

namespace hone {

class GrpoTask final : public TrainingTask {
 public:
  // The workspace has the programs of trace_run(run) and is allocated; all outlive the task.
  GrpoTask(const GrpoRun& run, Workspace& workspace, RolloutSource& source);

  MetricValues accumulate(std::int64_t step) override;
  // reward, its deviation, each reward's mean, the completions' mean length and the share that was cut.
  std::vector<std::string> shown_metrics() const override;
  std::string idle_cause(const MetricValues& values, double grad_norm) const override;
  void after_update(std::int64_t step) override;
  double epoch() const override;
  std::int64_t tokens_seen() const override { return tokens_seen_; }
  double flops() const override { return flops_; }
  // num_generations completions of every held-out prompt, sampled as in training, the same seeds each time: the metrics
  // of a step under "eval_". Weights, data position and num_tokens stay as they are.
  MetricValues evaluate(std::int64_t step) override;
  Json last_batch() const override;
  Json state() const override;
  void restore(const Json& state) override;

  // Micro-steps in an epoch of prompts.
  [[nodiscard]] static std::int64_t micro_steps_per_epoch(const GrpoOptions& options, const GrpoBatch& batch,
                                                          std::int64_t prompts);

 private:
  // Throws Defect where a sampled token's probability differs between rollout and trainer.
  void check_exact(const MetricValues& values, std::int64_t step) const;
  // Completions of `chosen` prompts, judged; `use` and `number` tell their random numbers apart from others'.
  [[nodiscard]] Rollout sample(const PromptSet& prompts, std::span<const std::uint32_t> chosen, std::string_view use,
                               std::int64_t number);
  // A new generation into samples_; returns it too.
  [[nodiscard]] Rollout generate();
  // Writes the completions of a step's generations, and prints them where that is asked for.
  void report(std::span<const Rollout> rollouts, const std::string& name, std::int64_t step) const;
  // log p of the completions' tokens, by a program of that name.
  [[nodiscard]] std::vector<std::vector<float>> logps_of(const char* program,
                                                         std::span<const PolicySample> samples) const;
  void add_reference_logps(std::span<PolicySample> samples) const;
  // Brings in the trainer's probabilities of what has just been sampled, where the options want it.
  void correct_importance(Rollout& rollout) const;
  // Samples cut at the micro-batch's size; the last may be shorter.
  [[nodiscard]] std::vector<std::span<const PolicySample>> micro_batches(std::span<const PolicySample> samples) const;
  [[nodiscard]] LossNormaliser normaliser_of(std::span<const PolicySample> samples) const;
  // Fills the weights, and leaves out the tokens that top_entropy_quantile does, over all batches of a step.
  void weigh(std::vector<PolicyBatch>& batches, std::span<const std::span<const PolicySample>> samples,
             const LossNormaliser& normaliser);
  // Runs one micro-batch; returns its share of the loss. compare: whether the policy is still the one that sampled.
  double run(const char* program, const PolicyBatch& batch, bool compare, PolicyMetrics& metrics,
             ModelFigures& figures);

  const GrpoRun& run_;
  Workspace& workspace_;
  RolloutSource& source_;
  BatchWork work_;         // of the policy's program
  std::int64_t step_ = 0;  // optimizer steps done
  PolicyLossOptions loss_;
  ChunkOrder order_;
  std::int64_t micro_steps_ = 0;  // done
  std::int64_t generations_ = 0;  // made
  std::int64_t updates_since_generation_ = 0;
  std::int64_t tokens_seen_ = 0;
  double flops_ = 0;
  std::vector<PolicySample> samples_;  // of the current generation
  std::vector<PolicySample> read_;     // by the last step: its micro-batches end to end
  NamedValues judged_;                 // rollout_metrics of the last step that generated
};

}  // namespace hone
