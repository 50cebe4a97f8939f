// Reward binary_code of open-r1: 1 if the completion's program passes all test cases of the row, otherwise 0.
#include "reward/judging/judge_code.h"
#include "reward/registry.h"

namespace hone {
namespace {

constexpr double kPassed = 0.99;  // minimum fraction of passed cases, as in open-r1

}  // namespace

void register_binary_code(RewardRegistry& registry) {
  registry.add("binary_code", "binary_code_reward", RewardScope::kCompletion,
               [](const RewardOptions& options) -> RewardFunction {
                 return [judge = make_code_judge(options)](std::span<const RewardInput> batch) {
                   RewardScores scores = judge(batch);
                   for (std::optional<double>& score : scores) {
                     if (score) score = *score > kPassed ? 1.0 : 0.0;
                   }
                   return scores;
                 };
               });
}

}  // namespace hone
