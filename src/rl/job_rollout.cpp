#include "rl/job_rollout.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/interrupt.h"
#include "core/json_value.h"
#include "rl/sample_json.h"

namespace hone {
namespace {

constexpr const char* kInterrupted = "interrupted";  // sent instead of a message

std::string to_message(const Rollout& rollout) {
  Json judged = Json::array();
  for (const ScoredCompletion& each : rollout.judged) {
    Json rewards = Json::array();
    for (const std::optional<double>& reward : each.rewards) rewards.push_back(reward ? Json(*reward) : Json());
    judged.push_back({{"prompt", each.prompt},
                      {"prompt_text", each.prompt_text},
                      {"completion", each.completion},
                      {"rewards", rewards},
                      {"finish_reason", each.finish_reason}});
  }
  const Json message{
      {"samples", to_json(rollout.samples)},
      {"judged", judged},
      {"times",
       {rollout.generation_seconds, rollout.reward_seconds, rollout.logprob_seconds, rollout.reference_seconds}}};
  return message.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Adds the rollout of a rank to those of the ranks before it.
void append_message(const Json& message, Rollout& rollout) {
  std::ranges::move(samples_from(message.at("samples")), std::back_inserter(rollout.samples));
  for (const Json& each : message.at("judged")) {
    ScoredCompletion& judged = rollout.judged.emplace_back();
    judged.prompt = each.at("prompt").get<std::int64_t>();
    judged.prompt_text = each.at("prompt_text").get<std::string>();
    judged.completion = each.at("completion").get<std::string>();
    judged.finish_reason = each.at("finish_reason").get<std::string>();
    for (const Json& reward : each.at("rewards")) {
      judged.rewards.push_back(reward.is_null() ? std::nullopt : std::optional(reward.get<double>()));
    }
  }
  const auto times = message.at("times").get<std::vector<double>>();
  rollout.generation_seconds = std::max(rollout.generation_seconds, times[0]);
  rollout.reward_seconds = std::max(rollout.reward_seconds, times[1]);
  rollout.logprob_seconds = std::max(rollout.logprob_seconds, times[2]);
  rollout.reference_seconds = std::max(rollout.reference_seconds, times[3]);
}

// Returns the message of each rank. If making one is interrupted, all ranks throw Interrupted.
std::vector<std::string> gather(const Job& job, const std::function<std::string()>& make_message) {
  std::string message = kInterrupted;
  try {
    message = make_message();
  } catch (const Interrupted&) {
    // The other ranks wait for this one's message; they end as it does.
  }
  std::vector<std::string> messages = job.peers()->gather(message);
  if (std::ranges::find(messages, kInterrupted) != messages.end()) throw Interrupted();
  return messages;
}

}  // namespace

IndexRange share_of_rank(std::size_t count, const Job& job) {
  const auto rank = static_cast<std::size_t>(job.rank());
  const auto size = static_cast<std::size_t>(job.size());
  const std::size_t first = count * rank / size;
  return {first, count * (rank + 1) / size - first};
}

Rollout roll_out_together(const Job& job, std::size_t rewards, const RolloutOptions& options,
                          const std::function<Rollout()>& sample) {
  if (job.size() == 1) return sample();
  const std::vector<std::string> messages = gather(job, [&] { return to_message(sample()); });
  Rollout rollout;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    append_message(parse_json(messages[rank], job.peers()->name_of(static_cast<int>(rank))), rollout);
  }
  for (std::size_t r = 0; r < rewards; ++r) {
    RewardScores& scores = rollout.scores.emplace_back();
    for (const ScoredCompletion& judged : rollout.judged) scores.push_back(judged.rewards.at(r));
  }
  set_advantages(rollout, options);
  return rollout;
}

std::vector<DrawnTokens> draw_together(const Job& job, const std::function<std::vector<DrawnTokens>()>& draw) {
  if (job.size() == 1) return draw();
  const auto to_text = [&] {
    Json drawn = Json::array();
    for (const DrawnTokens& one : draw()) drawn.push_back({{"tokens", one.tokens}, {"logps", one.logps}});
    return drawn.dump();
  };
  const std::vector<std::string> messages = gather(job, to_text);
  std::vector<DrawnTokens> all;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    for (const Json& one : parse_json(messages[rank], job.peers()->name_of(static_cast<int>(rank))))
      all.push_back({one.at("tokens").get<std::vector<TokenId>>(), one.at("logps").get<std::vector<float>>()});
  }
  return all;
}

}  // namespace hone
