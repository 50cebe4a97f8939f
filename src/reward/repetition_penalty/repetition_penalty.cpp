// Reward repetition_penalty: the n-gram penalty of arXiv 2502.03373, appendix C.2, as in open-r1.
// score = (1 - unique / total) * max_penalty, with the numbers of unique and of all n-grams of lower-case words.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/characters.h"
#include "core/error.h"
#include "reward/registry.h"

namespace hone {
namespace {

struct RepetitionKeys {
  std::int64_t n_grams = 3;
  double max_penalty = -1.0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("repetition_n_grams", n_grams, "repetition_penalty: words of an n-gram", at_least(1));
    v("repetition_max_penalty", max_penalty, "repetition_penalty: the reward of pure repetition", {.most = 0});
  }
};

// Replaces each word by the index of that word among the distinct words, so that n-grams compare as lists of numbers.
std::vector<std::size_t> numbered_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = skip_spaces(text, 0); at < text.size(); at = skip_spaces(text, at)) {
    const std::size_t begin = at;
    while (at < text.size() && white_space_length(text, at) == 0) at = next_code_point(text, at);
    words.push_back(text.substr(begin, at - begin));
  }
  std::vector<std::string_view> known = words;
  std::ranges::sort(known);
  const auto [last, end] = std::ranges::unique(known);
  known.erase(last, end);
  std::vector<std::size_t> numbers;
  numbers.reserve(words.size());
  for (const std::string_view word : words) {
    numbers.push_back(static_cast<std::size_t>(std::ranges::lower_bound(known, word) - known.begin()));
  }
  return numbers;
}

double score_repetition(std::string_view text, std::size_t n, double max_penalty) {
  const std::string lowered = lower_case(text);
  const std::vector<std::size_t> words = numbered_words(lowered);
  if (words.size() < n) return 0.0;
  const std::size_t total = words.size() - n + 1;
  std::set<std::vector<std::size_t>> distinct;
  for (std::size_t i = 0; i < total; ++i) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(i);
    distinct.emplace(begin, begin + static_cast<std::ptrdiff_t>(n));
  }
  return (1.0 - static_cast<double>(distinct.size()) / static_cast<double>(total)) * max_penalty;
}

}  // namespace

void register_repetition_penalty(RewardRegistry& registry) {
  registry.add_keys(OptionSet::of<RepetitionKeys>());
  registry.add("repetition_penalty", "repetition_penalty_reward", RewardScope::kCompletion,
               [](const RewardOptions& options) {
                 const auto& keys = options.keys.get<RepetitionKeys>();
                 if (keys.n_grams > 64)
                   throw Error("repetition_n_grams", text_of(keys.n_grams, " is not between 1 and 64"));
                 return each([keys](const RewardInput& input) -> std::optional<double> {
                   return score_repetition(input.completion, static_cast<std::size_t>(keys.n_grams), keys.max_penalty);
                 });
               });
}

}  // namespace hone
