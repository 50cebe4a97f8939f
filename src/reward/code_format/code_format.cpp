// Reward code_format of open-r1: like the reward format, but the answer must contain a code block in the language:
// re.match(r"^<think>\n.*?\n</think>\n<answer>\n.*?```LANG.*?```.*?\n</answer>$", DOTALL | MULTILINE).
#include <string>

#include "core/error.h"
#include "core/json_value.h"
#include "reward/registry.h"
#include "reward/tags.h"

namespace hone {
namespace {

constexpr std::string_view kFence = "```";

struct CodeFormatKeys {
  std::string language = "python";

  template <class Visitor>
  void fields(Visitor& v) {
    v("code_language", language, "code_format: the language of the block, where the row does not say");
  }
};

// Searches for the first occurrence of each part. This is enough: everything after a later occurrence is also after the
// first one.
bool has_code_format(std::string_view text, std::string_view language, bool opened) {
  const std::size_t answer = answer_start(text, opened);
  if (answer == std::string_view::npos) return false;
  const std::string opening = text_of(kFence, language);
  const std::size_t open = text.find(opening, answer);
  if (open == std::string_view::npos) return false;
  const std::size_t close = text.find(kFence, open + opening.size());
  return close != std::string_view::npos && answer_ends(text, close + kFence.size());
}

// Returns the row's column `language`, which overrides code_language.
std::string language_of(const RewardInput& input, const std::string& otherwise) {
  if (input.row == nullptr || !input.row->contains("language")) return otherwise;
  const Json& language = (*input.row)["language"];
  if (!language.is_string())
    throw Error("code_format", text_of("the column `language` is ", language.dump()), "it must be a text");
  return language.get<std::string>();
}

}  // namespace

void register_code_format(RewardRegistry& registry) {
  registry.add_keys(OptionSet::of<CodeFormatKeys>());
  registry.add("code_format", "code_format_reward", RewardScope::kCompletion, [](const RewardOptions& options) {
    return each([prefilled = options.think_prefilled,
                 keys = options.keys.get<CodeFormatKeys>()](const RewardInput& input) -> std::optional<double> {
      const bool opened = needs_think_opening(input.completion, prefilled);
      return has_code_format(input.completion, language_of(input, keys.language), opened) ? 1.0 : 0.0;
    });
  });
}

}  // namespace hone
