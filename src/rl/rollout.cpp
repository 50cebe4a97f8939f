#include "rl/rollout.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"

namespace hone {
namespace {

// Returns num_generations requests for each prompt, those of a prompt next to each other.
std::vector<Request> make_requests(const PromptSet& prompts, std::span<const std::uint32_t> chosen,
                                   const RolloutOptions& options,
                                   const std::function<std::uint64_t(std::size_t)>& seed_of) {
  std::vector<Request> requests;
  for (const std::uint32_t prompt : chosen) {
    const std::span<const TokenId> tokens = prompts.tokens(prompt);
    for (std::int64_t i = 0; i < options.num_generations; ++i) {
      Request request{{tokens.begin(), tokens.end()}, options.sampling};
      request.sampling.seed = seed_of(requests.size());
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

// Pairs each completion with its request, as a sample for the loss and as text. Scores and advantages are still
// missing.
Rollout collect_samples(std::span<const Request> requests, std::span<const Completion> completions,
                        const Tokenizer& tokenizer, const PromptSet& prompts, std::span<const std::uint32_t> chosen,
                        std::size_t group_size) {
  Rollout rollout;
  for (std::size_t i = 0; i < completions.size(); ++i) {
    const std::uint32_t prompt = chosen[i / group_size];
    ScoredCompletion judged;
    judged.prompt = prompt;
    judged.prompt_text = tokenizer.decode(requests[i].prompt);
    judged.completion = std::string(prompts.prefill(prompt)) + completions[i].text;
    judged.finish_reason = name_of(completions[i].finish_reason);
    rollout.judged.push_back(std::move(judged));
    PolicySample sample;
    sample.prompt = requests[i].prompt;
    sample.completion = completions[i].tokens;
    sample.logps = completions[i].logps;
    sample.truncated = completions[i].finish_reason != FinishReason::kStop;
    rollout.samples.push_back(std::move(sample));
  }
  return rollout;
}

// Scores all completions with each reward. A reward sees the whole batch, because some compare completions of a group.
void score(Rollout& rollout, std::span<const Reward> rewards, const PromptSet& prompts,
           std::span<const std::uint32_t> chosen, const RolloutOptions& options) {
  std::vector<Json> rows;       // [prompts]
  std::vector<Json> questions;  // [prompts]
  for (const std::uint32_t prompt : chosen) {
    rows.push_back(prompts.row(prompt));
    questions.push_back(question_in(rows.back(), options.columns));
  }
  std::vector<RewardInput> inputs;  // [samples]
  inputs.reserve(rollout.samples.size());
  for (std::size_t i = 0; i < rollout.samples.size(); ++i) {
    const PolicySample& sample = rollout.samples[i];
    const std::size_t group = i / static_cast<std::size_t>(options.num_generations);
    inputs.push_back({.completion = rollout.judged[i].completion,
                      .row = &rows[group],
                      .group = static_cast<std::int64_t>(group),
                      .token_count = static_cast<std::int64_t>(sample.completion.size()),
                      .ended = !sample.truncated,
                      .prompt = &questions[group],
                      .completion_ids = sample.completion,
                      .progress = options.progress});
  }
  for (const Reward& reward : rewards) {
    rollout.scores.push_back(reward.score(inputs));
    for (std::size_t i = 0; i < inputs.size(); ++i) rollout.judged[i].rewards.push_back(rollout.scores.back()[i]);
  }
}

}  // namespace

void set_advantages(Rollout& rollout, const RolloutOptions& options) {
  const auto totals = total_rewards(rollout.scores, options.reward_weights);
  rollout.advantages = compute_advantages(totals, options.num_generations, options.scale);
  for (std::size_t i = 0; i < rollout.samples.size(); ++i) {
    rollout.samples[i].advantage = rollout.advantages.values[i];
    rollout.judged[i].advantage = rollout.advantages.values[i];
  }
}

Rollout roll_out(RolloutSource& source, const Tokenizer& tokenizer, const PromptSet& prompts,
                 std::span<const std::uint32_t> chosen, std::span<const Reward> rewards, const RolloutOptions& options,
                 const std::function<std::uint64_t(std::size_t)>& seed_of) {
  const auto group_size = static_cast<std::size_t>(options.num_generations);
  const std::vector<Request> requests = make_requests(prompts, chosen, options, seed_of);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const std::vector<Completion> completions = source.generate(requests);
  const Clock::time_point generated = Clock::now();
  Rollout rollout = collect_samples(requests, completions, tokenizer, prompts, chosen, group_size);
  score(rollout, rewards, prompts, chosen, options);
  set_advantages(rollout, options);
  rollout.generation_seconds = std::chrono::duration<double>(generated - start).count();
  rollout.reward_seconds = std::chrono::duration<double>(Clock::now() - generated).count();
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
