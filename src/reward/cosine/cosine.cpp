// Reward cosine: the cosine-scaled length reward (arXiv 2502.03373), as in open-r1. A correct answer scores less the
// longer the completion is, and a wrong answer scores higher the longer it is. As in open-r1, the length is not clamped
// to cosine_max_len.
#include <cmath>
#include <numbers>

#include "core/characters.h"
#include "reward/answers.h"
#include "reward/registry.h"

namespace hone {
namespace {

struct CosineKeys {
  double min_value_wrong = 0.0;
  double max_value_wrong = -0.5;
  double min_value_correct = 0.5;
  double max_value_correct = 1.0;
  std::int64_t max_len = 1000;

  template <class Visitor>
  void fields(Visitor& v) {
    v("cosine_min_value_wrong", min_value_wrong, "cosine: a wrong completion of length 0");
    v("cosine_max_value_wrong", max_value_wrong, "cosine: a wrong completion of cosine_max_len");
    v("cosine_min_value_correct", min_value_correct, "cosine: a correct completion of cosine_max_len");
    v("cosine_max_value_correct", max_value_correct, "cosine: a correct completion of length 0");
    v("cosine_max_len", max_len, "cosine: characters of a half wave", at_least(1));
  }
};

std::optional<double> score_cosine(const RewardInput& input, Verdict verdict, const CosineKeys& keys) {
  if (verdict == Verdict::kNoGold) return 1.0;
  if (verdict == Verdict::kFailed) return std::nullopt;
  const bool correct = verdict == Verdict::kCorrect;
  const double low = correct ? keys.min_value_correct : keys.max_value_wrong;
  const double high = correct ? keys.max_value_correct : keys.min_value_wrong;
  const double progress = static_cast<double>(code_points(input.completion)) / static_cast<double>(keys.max_len);
  return low + 0.5 * (high - low) * (1.0 + std::cos(progress * std::numbers::pi));
}

}  // namespace

void register_cosine(RewardRegistry& registry) {
  registry.add_keys(OptionSet::of<AnswerKeys, CosineKeys>());
  registry.add("cosine", "cosine_scaled_reward", RewardScope::kCompletion,
               [](const RewardOptions& options) -> RewardFunction {
                 return [options, workers = shared_math_workers()](std::span<const RewardInput> batch) {
                   const auto& keys = options.keys.get<CosineKeys>();
                   const std::vector<Verdict> verdicts = judge_answers(batch, options, *workers);
                   RewardScores scores;
                   for (std::size_t i = 0; i < batch.size(); ++i)
                     scores.push_back(score_cosine(batch[i], verdicts[i], keys));
                   return scores;
                 };
               });
}

}  // namespace hone
