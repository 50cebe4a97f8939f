// Reward format of open-r1: 1 if the completion matches
// re.match(r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$", DOTALL | MULTILINE), otherwise 0.
#include "reward/registry.h"
#include "reward/tags.h"

namespace hone {
namespace {

bool has_format(std::string_view text, bool opened) {
  const std::size_t answer = answer_start(text, opened);
  return answer != std::string_view::npos && answer_ends(text, answer);
}

}  // namespace

void register_format(RewardRegistry& registry) {
  registry.add("format", "format_reward", RewardScope::kCompletion, [](const RewardOptions& options) {
    return each([opened = options.think_prefilled](const RewardInput& input) -> std::optional<double> {
      return has_format(input.completion, needs_think_opening(input.completion, opened)) ? 1.0 : 0.0;
    });
  });
}

}  // namespace hone
