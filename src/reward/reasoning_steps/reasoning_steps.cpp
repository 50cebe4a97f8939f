// Reward reasoning_steps of open-r1: min(1, n / 3), where n is the number of matches of
// (Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,), where ^ is the beginning of the text.
#include <algorithm>

#include "core/characters.h"
#include "reward/registry.h"

namespace hone {
namespace {

std::size_t digits_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// Returns the length of the match at offset `at`; 0 if there is none.
std::size_t mark_length(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("Step ")) {
    const std::size_t end = digits_end(rest, 5);
    if (end > 5 && end < rest.size() && rest[end] == ':') return end + 1;
  }
  if (at == 0) {
    const std::size_t end = digits_end(rest, 0);
    if (end > 0 && end < rest.size() && rest[end] == '.') return end + 1;
  }
  for (const std::string_view mark : {"\n-", "\n*", "First,", "Second,", "Next,", "Finally,"}) {
    if (rest.starts_with(mark)) return mark.size();
  }
  return 0;
}

double score_steps(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = mark_length(text, at);
    count += length > 0 ? 1 : 0;
    at += std::max<std::size_t>(length, 1);
  }
  return std::min(1.0, static_cast<double>(count) / 3.0);
}

}  // namespace

void register_reasoning_steps(RewardRegistry& registry) {
  registry.add("reasoning_steps", "reasoning_steps_reward", RewardScope::kCompletion, [](const RewardOptions&) {
    return each([](const RewardInput& input) -> std::optional<double> { return score_steps(input.completion); });
  });
}

}  // namespace hone
