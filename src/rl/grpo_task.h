// Group relative policy optimisation: rollouts and updates on the same weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "rl/grpo_metrics.h"
#include "rl/policy_program.h"
#include "rl/rollout.h"
#include "train/trainer.h"

namespace hone {

class GrpoTask final : public TrainingTask {
 public:
  struct Setup {
    const GrpoOptions& options;
    GrpoBatch batch;
    Executable& policy;               // trace_policy
    Executable* reference = nullptr;  // trace_reference, bound to reference_weights
    TensorStore* reference_weights = nullptr;
    const TensorStore& weights;
    Engine& engine;
    const Tokenizer& tokenizer;
    const PromptSet& prompts;
    std::vector<Reward> rewards;
    std::vector<double> reward_weights;
    std::vector<TokenId> stop_token_ids;
    std::filesystem::path completions_dir;
  };
  explicit GrpoTask(Setup setup);

  MetricValues accumulate(std::int64_t step) override;
  void after_update(std::int64_t step) override;
  double epoch() const override;
  std::int64_t tokens_seen() const override { return tokens_seen_; }
  Json last_batch() const override;
  Json state() const override;
  void restore(const Json& state) override;
  TensorStore* extra_state() override { return setup_.reference_weights; }

  // Micro-steps in an epoch of prompts.
  [[nodiscard]] static std::int64_t micro_steps_per_epoch(const GrpoOptions& options, const GrpoBatch& batch,
                                                          std::int64_t prompts);

 private:
  // Throws Defect where a sampled token's probability differs between rollout and trainer.
  void check_exact(const MetricValues& values, std::int64_t step) const;
  // A new generation into samples_; returns it too.
  [[nodiscard]] Rollout generate();
  // Writes the completions of a step's generations, and prints them where that is asked for.
  void report(std::span<const Rollout> rollouts, std::int64_t step) const;
  void add_reference_logps();
  // The `index`-th micro-batch of a generation or of a step.
  [[nodiscard]] std::span<const PolicySample> micro_batch(std::span<const PolicySample> samples,
                                                          std::int64_t index) const;
  // Runs one micro-batch; returns its share of the loss. compare: whether the policy is still the one that sampled.
  double run(std::span<const PolicySample> samples, const LossNormaliser& normaliser, bool compare,
             PolicyMetrics& metrics);

  Setup setup_;
  PolicyLossOptions loss_;
  ChunkOrder order_;
  std::int64_t micro_steps_ = 0;  // done
  std::int64_t generations_ = 0;  // made
  std::int64_t updates_since_generation_ = 0;
  std::int64_t tokens_seen_ = 0;
  std::vector<PolicySample> samples_;  // of the current generation
  std::vector<PolicySample> read_;     // by the last step: its micro-batches end to end
};

}  // namespace hone
