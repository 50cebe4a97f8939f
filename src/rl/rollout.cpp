#include "rl/rollout.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "rl/scorer.h"

namespace hone {
namespace {

// Returns num_generations requests for each prompt, those of a prompt next to each other.
std::vector<Request> make_requests(const RolloutPrompts& from, const RolloutOptions& options) {
  std::vector<Request> requests;
  for (const std::uint32_t prompt : from.chosen) {
    const std::span<const TokenId> tokens = from.prompts.tokens(prompt);
    for (std::int64_t i = 0; i < options.num_generations; ++i) {
      Request request{{tokens.begin(), tokens.end()}, options.sampling};
      request.sampling.seed = from.seed_of(requests.size());
      if (!from.begun.empty()) request.begun = from.begun[requests.size()];
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

Json to_json(const ScoredCompletion& judged, std::span<const Reward> rewards, std::int64_t step) {
  Json scores = Json::object();
  for (std::size_t r = 0; r < rewards.size(); ++r) {
    const std::optional<double>& score = judged.rewards[r];
    scores[rewards[r].name] = score ? Json(*score) : Json();
  }
  return {{"step", step},
          {"row", judged.prompt},
          {"prompt", judged.prompt_text},
          {"completion", judged.completion},
          {"rewards", scores},
          {"advantage", judged.advantage},
          {"finish_reason", judged.finish_reason}};
}

// The columns of the prompts, and what was asked in each, as rewards see them.
struct PromptRows {
  std::vector<Json> rows;       // [prompts]
  std::vector<Json> questions;  // [prompts]
};
PromptRows rows_of(const PromptSet& prompts, std::span<const std::uint32_t> chosen, const RolloutOptions& options) {
  PromptRows result;
  for (const std::uint32_t prompt : chosen) {
    result.rows.push_back(prompts.row(prompt));
    result.questions.push_back(question_in(result.rows.back(), options.columns));
  }
  return result;
}

// Pairs completions with their requests, as samples for the loss, as text, and as rewards see them. Each completion has
// its place from the beginning, so that they may come in any order and on any thread.
class CompletionTable {
 public:
  CompletionTable(std::span<const Request> requests, const Tokenizer& tokenizer, const PromptSet& prompts,
                  std::span<const std::uint32_t> chosen, const RolloutOptions& options)
      : requests_(requests),
        prompts_(prompts),
        chosen_(chosen),
        options_(options),
        asked_(rows_of(prompts, chosen, options)),
        inputs_(requests.size()) {
    rollout_.judged.resize(requests.size());
    rollout_.samples.resize(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      rollout_.judged[i].prompt = chosen[group_of(i)];
      rollout_.judged[i].prompt_text = tokenizer.decode(requests[i].prompt);
    }
  }

  void set(std::size_t i, const Completion& completion) {
    const std::size_t group = group_of(i);
    ScoredCompletion& judged = rollout_.judged[i];
    judged.completion = std::string(prompts_.prefill(chosen_[group])) + completion.text;
    judged.finish_reason = name_of(completion.finish_reason);
    PolicySample& sample = rollout_.samples[i];
    sample.prompt = requests_[i].prompt;
    sample.completion = completion.tokens;
    sample.logps = completion.logps;
    sample.truncated = completion.finish_reason != FinishReason::kStop;
    inputs_[i] = {.completion = judged.completion,
                  .row = &asked_.rows[group],
                  .group = static_cast<std::int64_t>(group),
                  .token_count = static_cast<std::int64_t>(sample.completion.size()),
                  .ended = !sample.truncated,
                  .prompt = &asked_.questions[group],
                  .completion_ids = sample.completion,
                  .progress = options_.progress};
  }

  [[nodiscard]] std::span<const RewardInput> inputs() const { return inputs_; }
  // Returns the rollout, whose scores and advantages are still missing.
  [[nodiscard]] Rollout take() { return std::move(rollout_); }

 private:
  [[nodiscard]] std::size_t group_of(std::size_t i) const {
    return i / static_cast<std::size_t>(options_.num_generations);
  }

  std::span<const Request> requests_;
  const PromptSet& prompts_;
  std::span<const std::uint32_t> chosen_;
  const RolloutOptions& options_;
  PromptRows asked_;
  Rollout rollout_;
  std::vector<RewardInput> inputs_;  // [requests]; they refer to the other members
};

}  // namespace

void set_advantages(Rollout& rollout, const RolloutOptions& options) {
  const auto totals = total_rewards(rollout.scores, options.reward_weights);
  rollout.advantages = compute_advantages(totals, options.num_generations, options.scale);
  for (std::size_t i = 0; i < rollout.samples.size(); ++i) {
    rollout.samples[i].advantage = rollout.advantages.values[i];
    rollout.judged[i].advantage = rollout.advantages.values[i];
  }
}

Generated RolloutSource::generate_ahead(std::span<const Request> requests, std::span<const Request> ahead,
                                        const OnFinished& on_finished) {
  HONE_ASSERT(ahead.empty(), "this source of completions begins none ahead");
  return {generate(requests, on_finished), {}};
}

Generated EngineRollout::generate_ahead(std::span<const Request> requests, std::span<const Request> ahead,
                                        const OnFinished& on_finished) {
  if (group_ == nullptr) return engine_.generate(requests, ahead, on_finished);
  // Followers carry out orders until the end, also if this rank fails or is interrupted, except by the loss of a rank.
  try {
    Generated generated = engine_.generate(requests, ahead, on_finished);
    group_->end();
    return generated;
  } catch (const JobFailure&) {
    throw;
  } catch (...) {
    group_->end();
    throw;
  }
}

Rollout roll_out(RolloutSource& source, const Tokenizer& tokenizer, const RolloutPrompts& now,
                 std::span<const Reward> rewards, const RolloutOptions& options, const RolloutPrompts* next) {
  const std::vector<Request> requests = make_requests(now, options);
  const std::vector<Request> ahead = next != nullptr ? make_requests(*next, options) : std::vector<Request>();
  CompletionTable table(requests, tokenizer, now.prompts, now.chosen, options);
  Scorer scorer(rewards, table.inputs());
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Generated generated = source.generate_ahead(requests, ahead, [&](std::size_t i, const Completion& completion) {
    table.set(i, completion);
    scorer.add(i);
  });
  const Clock::time_point end = Clock::now();
  std::vector<RewardScores> scores = scorer.finish();
  Rollout rollout = table.take();
  rollout.scores = std::move(scores);
  for (std::size_t i = 0; i < requests.size(); ++i)
    for (const RewardScores& of_reward : rollout.scores) rollout.judged[i].rewards.push_back(of_reward[i]);
  set_advantages(rollout, options);
  for (std::size_t i = 0; i < requests.size(); ++i)
    rollout.stale.push_back(std::min(requests[i].begun.tokens.size(), rollout.samples[i].completion.size()));
  for (Completion& completion : generated.ahead)
    rollout.begun_ahead.push_back({std::move(completion.tokens), std::move(completion.logps)});
  rollout.generation_seconds = std::chrono::duration<double>(end - start).count();
  rollout.reward_seconds = std::chrono::duration<double>(Clock::now() - end).count();
  return rollout;
}

void write_completions(const std::filesystem::path& path, std::span<const Rollout> rollouts,
                       std::span<const Reward> rewards, std::int64_t step) {
  std::string text;
  for (const Rollout& rollout : rollouts) {
    for (const ScoredCompletion& judged : rollout.judged) {
      text += to_json(judged, rewards, step).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    }
  }
  hone::create_directories(path.parent_path());
  write_file(path, text);
}

std::string rewards_text(const Json& completion) {
  std::string text = text_of("advantage ", completion.at("advantage").get<double>());
  for (const auto& [name, value] : completion.at("rewards").items()) {
    text += text_of(", ", name, " ", value.is_null() ? "n/a" : text_of(value.get<double>()));
  }
  return text;
}

std::string to_text(const ScoredCompletion& judged, std::span<const Reward> rewards) {
  return text_of(rewards_text(to_json(judged, rewards, 0)), "\n", judged.prompt_text, judged.completion);
}

}  // namespace hone
