// Reward tag_count of open-r1: 0.25 for each of the four tags that occurs exactly once.
#include "reward/registry.h"
#include "reward/tags.h"

namespace hone {
namespace {

double count_tags(std::string_view text, bool opened) {
  const std::size_t openings = count_occurrences(text, kThinkOpening) + (opened ? 1 : 0);
  double score = openings == 1 ? 0.25 : 0.0;
  // After a prefilled "<think>\n", a completion that begins with the closing tag has the newline of the prefill before
  // it.
  const bool closes_at_once = opened && text.starts_with("</think>\n");
  if (count_occurrences(text, "\n</think>\n") + (closes_at_once ? 1 : 0) == 1) score += 0.25;
  if (count_occurrences(text, "\n<answer>\n") == 1) score += 0.25;
  if (count_occurrences(text, "\n</answer>") == 1) score += 0.25;
  return score;
}

}  // namespace

void register_tag_count(RewardRegistry& registry) {
  registry.add("tag_count", "tag_count_reward", RewardScope::kCompletion, [](const RewardOptions& options) {
    return each([opened = options.think_prefilled](const RewardInput& input) -> std::optional<double> {
      return count_tags(input.completion, needs_think_opening(input.completion, opened));
    });
  });
}

}  // namespace hone
