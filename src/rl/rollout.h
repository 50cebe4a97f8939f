// Rollouts: completions of a step's prompts, judged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/prompt_set.h"
#include "engine/engine.h"
#include "reward/registry.h"
#include "rl/advantages.h"
#include "rl/policy_batch.h"

namespace hone {

// Completions with what they earned, for reading.
struct JudgedCompletion {
  std::int64_t prompt = 0;  // its number in the prompt set
  std::string prompt_text;
  std::string completion;
  std::vector<std::optional<double>> rewards;  // by reward
  double advantage = 0;
  std::string finish_reason;
};

struct Rollout {
  std::vector<PolicySample> samples;  // num_generations neighbours a prompt, prompts in the given order
  std::vector<JudgedCompletion> judged;
  std::vector<RewardScores> scores;  // [rewards][samples]
  Advantages advantages;
  std::vector<std::pair<std::string, double>> importance;  // ImportanceMetrics, where ratios were taken
};

// Where the recipe says that prompts are.
[[nodiscard]] ColumnOptions prompt_columns(const GrpoOptions& options);

// What completions come from.
class RolloutSource {
 public:
  virtual ~RolloutSource() = default;
  // Results in the order of the requests. Throws Interrupted at Ctrl+C.
  [[nodiscard]] virtual std::vector<Completion> generate(std::span<const Request> requests) = 0;
  // After the policy's weights have changed.
  virtual void weights_moved() {}
};

// The engine on the policy's own weights.
class EngineRollout final : public RolloutSource {
 public:
  explicit EngineRollout(Engine engine) : engine_(std::move(engine)) {}
  [[nodiscard]] std::vector<Completion> generate(std::span<const Request> requests) override {
    return engine_.generate(requests);
  }

 private:
  Engine engine_;
};

struct RolloutOptions {
  std::int64_t num_generations = 8;
  SamplingParams sampling;  // the seed is set for each completion
  RewardScale scale = RewardScale::group;
  std::vector<double> reward_weights;
  ColumnOptions columns;  // where rewards find what was asked
  RunProgress progress;
};

// `seed_of(sample)`: the seed of each completion's sampling. Throws Interrupted at Ctrl+C.
[[nodiscard]] Rollout roll_out(RolloutSource& source, const Tokenizer& tokenizer, const PromptSet& prompts,
                               std::span<const std::uint32_t> chosen, std::span<const Reward> rewards,
                               const RolloutOptions& options,
                               const std::function<std::uint64_t(std::size_t sample)>& seed_of);

// Writes the completions of a step's rollouts, one JSON object a line: step, row, prompt, completion, rewards by name
// (null: no opinion), advantage, finish_reason.
void write_completions(const std::filesystem::path& path, std::span<const Rollout> rollouts,
                       std::span<const Reward> rewards, std::int64_t step);
// "advantage 0.5, accuracy 1, format n/a", then prompt and completion.
[[nodiscard]] std::string to_text(const JudgedCompletion& judged, std::span<const Reward> rewards);
// The first line of it, of an object that write_completions wrote. Throws Json::exception for another one.
[[nodiscard]] std::string earned_text(const Json& completion);

}  // namespace hone
