// open-r1's accuracy reward: does the completion's answer mean the row's gold?
#include "reward/answers.h"
#include "reward/registry.h"

namespace hone {

void register_accuracy(RewardRegistry& registry) {
  registry.add("accuracy", "accuracy_reward", [](const RewardOptions& options) {
    return each([options](const RewardInput& input) -> std::optional<double> {
      switch (judge_answer(input, options)) {
        case Verdict::correct:
          return 1.0;
        case Verdict::wrong:
          return 0.0;
        case Verdict::no_gold:
          break;
      }
      return std::nullopt;
    });
  });
}

}  // namespace hone
