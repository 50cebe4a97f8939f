// Rollouts: samples completions of prompts, scores them and computes their advantages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/prompt_set.h"
#include "engine/engine.h"
#include "engine/engine_group.h"
#include "engine/follower.h"
#include "reward/registry.h"
#include "rl/advantages.h"
#include "rl/policy_batch.h"

namespace hone {

// A completion as text with its rewards, for files and the log.
struct ScoredCompletion {
  std::int64_t prompt = 0;  // index in the prompt set
  std::string prompt_text;
  std::string completion;
  std::vector<std::optional<double>> rewards;  // [rewards]
  double advantage = 0;
  std::string finish_reason;
};

struct Rollout {
  std::vector<PolicySample> samples;     // [prompts x num_generations], the completions of a prompt are consecutive
  std::vector<ScoredCompletion> judged;  // [samples]
  std::vector<RewardScores> scores;      // [rewards][samples]
  Advantages advantages;
  std::vector<std::size_t> stale;        // [samples] first tokens of a completion that older weights have drawn
  std::vector<DrawnTokens> begun_ahead;  // [completions of the next generation] what they have; empty: none has begun
  std::vector<std::pair<std::string, double>> importance;  // ImportanceMetrics; empty if ratios were not computed
  double weights_seconds = 0;                              // until servers had the weights
  double generation_seconds = 0;
  double reward_seconds = 0;     // from the end of generation until all rewards are there
  double logprob_seconds = 0;    // log-probabilities of the trainer, to compare them with the sampler's
  double reference_seconds = 0;  // log-probabilities of the reference model
};

// Returns the columns that hold prompts, as the recipe names them.
[[nodiscard]] ColumnOptions prompt_columns(const GrpoOptions& options);

// Source of completions: hone's engine or a server.
class RolloutSource {
 public:
  virtual ~RolloutSource() = default;
  using OnFinished = std::function<void(std::size_t request, const Completion& completion)>;
  // Returns one completion per request, in the same order. Calls on_finished for each of them as soon as it is
  // complete, in any order and from any thread, but not concurrently for one request. Throws Interrupted on Ctrl+C.
  [[nodiscard]] virtual std::vector<Completion> generate(std::span<const Request> requests,
                                                         const OnFinished& on_finished) = 0;
  // Likewise, and begins with the requests `ahead`: as Engine::generate() does, or, if Generated::ahead has none of
  // them, so that they run on until finish_ahead(). Not every source can.
  [[nodiscard]] virtual Generated generate_ahead(std::span<const Request> requests, std::span<const Request> ahead,
                                                 const OnFinished& on_finished);
  // Waits for requests ahead that run and returns their completions. Throws as generate() does.
  [[nodiscard]] virtual std::vector<Completion> finish_ahead() { return {}; }
  // Called by the other ranks of a tensor group while the first one calls generate() or generate_ahead(): takes part in
  // the work of its engine.
  virtual void follow() {}
  // Called after the weights of the policy have changed.
  virtual void weights_changed() {}
  // Brings the policy's weights to where completions are drawn, if they are elsewhere and have changed. Called by all
  // ranks of a job, which all throw Interrupted if one of them is interrupted.
  virtual void update_weights() {}
};

// Generates with hone's engine, which shares the weights of the policy. In a tensor group each rank has such an engine
// on its part of the weights, and the first rank's orders what the others run.
class EngineRollout final : public RolloutSource {
 public:
  // group: that of the engine; null: this process has the whole model.
  explicit EngineRollout(Engine engine, std::unique_ptr<EngineGroup> group = nullptr)
      : group_(std::move(group)), engine_(std::move(engine)) {}
  [[nodiscard]] std::vector<Completion> generate(std::span<const Request> requests,
                                                 const OnFinished& on_finished) override {
    return generate_ahead(requests, {}, on_finished).completions;
  }
  [[nodiscard]] Generated generate_ahead(std::span<const Request> requests, std::span<const Request> ahead,
                                         const OnFinished& on_finished) override;
  void follow() override { follow_engine(*group_, engine_); }
  void weights_changed() override { engine_.weights_changed(); }

 private:
  std::unique_ptr<EngineGroup> group_;  // outlives the engine
  Engine engine_;
};

struct RolloutOptions {
  std::int64_t num_generations = 8;
  SamplingParams sampling;  // seed is replaced for each completion
  RewardScale scale = RewardScale::kGroup;
  std::vector<double> reward_weights;
  ColumnOptions columns;  // columns of the prompt that rewards receive
  RunProgress progress;
};

// Completions to draw: num_generations of each prompt in `chosen`.
struct RolloutPrompts {
  const PromptSet& prompts;
  std::span<const std::uint32_t> chosen;
  std::function<std::uint64_t(std::size_t completion)> seed_of;  // sampling seeds
  std::span<const DrawnTokens> begun = {};                       // [completions] what they have already; empty: nothing
};

// Samples completions, scores them and computes their advantages. Rewards of RewardScope::kCompletion judge completions
// while others are still generated. `next`: the prompts of the next generation, if it is to be begun where this one
// leaves room; null: it is not. Throws Error if a reward does and Interrupted on Ctrl+C.
[[nodiscard]] Rollout roll_out(RolloutSource& source, const Tokenizer& tokenizer, const RolloutPrompts& now,
                               std::span<const Reward> rewards, const RolloutOptions& options,
                               const RolloutPrompts* next = nullptr);

// Computes the advantages of scored completions from rollout.scores.
void set_advantages(Rollout& rollout, const RolloutOptions& options);

// Writes the completions of a step's rollouts, one JSON object per line: step, row, prompt, completion, rewards by name
// (null: no score), advantage, finish_reason.
void write_completions(const std::filesystem::path& path, std::span<const Rollout> rollouts,
                       std::span<const Reward> rewards, std::int64_t step);
// Returns a line like "advantage 0.5, accuracy 1, format n/a", then prompt and completion.
[[nodiscard]] std::string to_text(const ScoredCompletion& judged, std::span<const Reward> rewards);
// Returns that first line for an object written by write_completions. Throws Json::exception for any other object.
[[nodiscard]] std::string rewards_text(const Json& completion);

}  // namespace hone
