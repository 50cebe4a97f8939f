// The cosine-scaled length reward (arXiv 2502.03373), as in open-r1: the longer a right answer, the less it earns; the
// longer a wrong one, the less it costs. Not clamped beyond cosine_max_len.
#include <cmath>
#include <numbers>

#include "core/characters.h"
#include "core/error.h"
#include "reward/answers.h"
#include "reward/registry.h"

namespace hone {
namespace {

std::optional<double> score_cosine(const RewardInput& input, Verdict verdict, const RewardOptions& options) {
  if (verdict == Verdict::no_gold) return 1.0;
  if (verdict == Verdict::failed) return std::nullopt;
  const bool correct = verdict == Verdict::correct;
  const double low = correct ? options.cosine_min_value_correct : options.cosine_max_value_wrong;
  const double high = correct ? options.cosine_max_value_correct : options.cosine_min_value_wrong;
  const double progress =
      static_cast<double>(code_points(input.completion)) / static_cast<double>(options.cosine_max_len);
  return low + 0.5 * (high - low) * (1.0 + std::cos(progress * std::numbers::pi));
}

}  // namespace

void register_cosine(RewardRegistry& registry) {
  registry.add("cosine", "cosine_scaled_reward", [](const RewardOptions& options) -> RewardFunction {
    if (options.cosine_max_len <= 0) throw Error("cosine_max_len", text_of(options.cosine_max_len, " is not positive"));
    return [options, workers = shared_math_workers()](std::span<const RewardInput> batch) {
      const std::vector<Verdict> verdicts = judge_answers(batch, options, *workers);
      RewardScores scores;
      for (std::size_t i = 0; i < batch.size(); ++i) scores.push_back(score_cosine(batch[i], verdicts[i], options));
      return scores;
    };
  });
}

}  // namespace hone
