// Reward accuracy of open-r1: 1 if the completion's answer is equal to the row's gold answer, otherwise 0; no score if
// the gold answer does not parse.
#include "reward/answers.h"
#include "reward/registry.h"

namespace hone {
namespace {

std::optional<double> score_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kCorrect:
      return 1.0;
    case Verdict::kWrong:
      return 0.0;
    case Verdict::kNoGold:
    case Verdict::kFailed:
      break;
  }
  return std::nullopt;
}

}  // namespace

void register_accuracy(RewardRegistry& registry) {
  registry.add_keys(OptionSet::of<AnswerKeys>());
  registry.add("accuracy", "accuracy_reward", RewardScope::kCompletion,
               [](const RewardOptions& options) -> RewardFunction {
                 return [options, workers = shared_math_workers()](std::span<const RewardInput> batch) {
                   RewardScores scores;
                   for (const Verdict verdict : judge_answers(batch, options, *workers))
                     scores.push_back(score_of(verdict));
                   return scores;
                 };
               });
}

}  // namespace hone
