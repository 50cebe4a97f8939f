// Reward length: the length reward of Kimi k1.5 (arXiv 2501.12599), as in open-r1. A correct answer scores
// lambda = 0.5 - (length - min) / (max - min), with lengths in characters, and a wrong one min(0, lambda).
#include <algorithm>
#include <map>
#include <utility>

#include "core/characters.h"
#include "reward/answers.h"
#include "reward/registry.h"

namespace hone {

enum class LengthScope : std::uint8_t { kGroup, kCall };
template <>
inline constexpr EnumTable kEnumTable<LengthScope>{.names = "group|call"};

namespace {

struct LengthKeys {
  LengthScope scope = LengthScope::kGroup;

  template <class Visitor>
  void fields(Visitor& v) {
    v("length_scope", scope, "length: over what the shortest and longest completion are taken");
  }
};

RewardScores score_lengths(std::span<const RewardInput> batch, const RewardOptions& options, MathWorkers& workers) {
  const std::vector<Verdict> verdicts = judge_answers(batch, options, workers);
  std::vector<std::int64_t> lengths;
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> range;  // scope -> minimum and maximum length
  const auto scope = [&](const RewardInput& input) {
    return options.keys.get<LengthKeys>().scope == LengthScope::kGroup ? input.group : 0;
  };
  for (const RewardInput& input : batch) {
    const auto length = static_cast<std::int64_t>(code_points(input.completion));
    lengths.push_back(length);
    auto& [shortest, longest] = range.try_emplace(scope(input), length, length).first->second;
    shortest = std::min(shortest, length);
    longest = std::max(longest, length);
  }
  RewardScores scores;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto [shortest, longest] = range.at(scope(batch[i]));
    if (verdicts[i] == Verdict::kFailed || shortest == longest) {
      scores.push_back(verdicts[i] == Verdict::kFailed ? std::nullopt : std::optional(0.0));
      continue;
    }
    const double lambda = 0.5 - static_cast<double>(lengths[i] - shortest) / static_cast<double>(longest - shortest);
    const bool wrong = verdicts[i] == Verdict::kWrong;  // Verdict::kNoGold counts as correct, as in open-r1
    scores.emplace_back(wrong ? std::min(0.0, lambda) : lambda);
  }
  return scores;
}

}  // namespace

void register_length(RewardRegistry& registry) {
  registry.add_keys(OptionSet::of<AnswerKeys, LengthKeys>());
  registry.add("length", "len_reward", RewardScope::kBatch, [](const RewardOptions& options) -> RewardFunction {
    return [options, workers = shared_math_workers()](std::span<const RewardInput> batch) {
      return score_lengths(batch, options, *workers);
    };
  });
}

}  // namespace hone
