#include "rl/idle_cause.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "core/error.h"

namespace hone {

std::string idle_cause(const NamedValues& rollout, double grad_norm, std::int64_t max_completion_length) {
  const auto value_of = [&](std::string_view name) {
    const auto at = std::ranges::find(rollout, name, &std::pair<std::string, double>::first);
    return at == rollout.end() ? std::numeric_limits<double>::quiet_NaN() : at->second;
  };
  const double clipped = value_of("completions/clipped_ratio");
  const std::string cut = clipped > 0
                              ? text_of("; ", std::llround(100 * clipped),
                                        "% of the completions are cut at max_completion_length ", max_completion_length)
                              : std::string();
  if (value_of("reward") == 0 && value_of("reward_std") == 0) {
    return "every reward is 0: the problems are too hard for this model, or its answers are not where the rewards look "
           "(`hone grpo --show` prints completions with their rewards)" +
           cut;
  }
  if (value_of("frac_reward_zero_std") == 1) {
    return "all completions of a prompt have the same reward, so every advantage is 0: the problems are too easy or "
           "too hard, temperature is too low, or the rewards do not distinguish completions" +
           cut;
  }
  if (grad_norm == 0) {
    return "the gradient is 0: every completion has an advantage of 0 or is masked "
           "(mask_truncated_completions)" +
           cut;
  }
  return {};
}

}  // namespace hone
