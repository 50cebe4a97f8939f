// open-r1's format reward: re.match(r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$", DOTALL | MULTILINE).
#include "reward/registry.h"
#include "reward/tags.h"

namespace hone {
namespace {

constexpr std::string_view kMiddle = "\n</think>\n<answer>\n";
constexpr std::string_view kEnd = "\n</answer>";

// The body of the thoughts may be empty, but "<think>\n" and "\n</think>" do not share their newline; nor do the
// answer's. `$` stands before any newline or at the end. Taking the first middle loses nothing: every end that follows
// a later middle follows the first one too.
bool has_format(std::string_view text, bool opened) {
  if (!opened) {
    if (!text.starts_with(kThinkOpening)) return false;
    text.remove_prefix(kThinkOpening.size());
  }
  const std::size_t middle = text.find(kMiddle);
  if (middle == std::string_view::npos) return false;
  for (std::size_t end = text.find(kEnd, middle + kMiddle.size()); end != std::string_view::npos;
       end = text.find(kEnd, end + 1)) {
    const std::size_t after = end + kEnd.size();
    if (after == text.size() || text[after] == '\n') return true;
  }
  return false;
}

}  // namespace

void register_format(RewardRegistry& registry) {
  registry.add("format", "format_reward", [](const RewardOptions& options) {
    return each([opened = options.think_prefilled](const RewardInput& input) -> std::optional<double> {
      return has_format(input.completion, needs_think_opening(input.completion, opened)) ? 1.0 : 0.0;
    });
  });
}

}  // namespace hone
