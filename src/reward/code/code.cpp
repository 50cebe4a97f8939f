// Reward code of open-r1: the fraction of the row's test cases that the completion's program passes.
#include "reward/judging/judge_code.h"
#include "reward/registry.h"

namespace hone {

void register_code(RewardRegistry& registry) {
  registry.add("code", "code_reward", RewardScope::kCompletion, [](const RewardOptions& options) -> RewardFunction {
    return [judge = make_code_judge(options)](std::span<const RewardInput> batch) { return judge(batch); };
  });
}

}  // namespace hone
