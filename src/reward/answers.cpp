#include "reward/answers.h"

#include <string>

#include "core/characters.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "reward/tags.h"

namespace hone {
namespace {

std::string gold_of(const Json* row) {
  HONE_ASSERT(row != nullptr && row->is_object(), "a reward that needs a gold answer was called without a row");
  for (const char* column : {"solution", "answer"}) {
    const auto place = row->find(column);
    if (place == row->end() || place->is_null()) continue;
    if (place->is_string()) return place->get<std::string>();
    if (place->is_number()) return place->dump();
    throw Error(text_of("column '", column, "'"),
                text_of("the gold answer must be a text or a number, not ", place->dump().substr(0, 60)));
  }
  std::string columns;
  for (const auto& [name, value] : row->items()) columns += (columns.empty() ? "" : ", ") + name;
  throw Error("reward", "the data has neither a column 'solution' nor 'answer' (columns: " + columns + ")",
              "accuracy, length and cosine need a gold");
}

Verdict verdict_of(MathVerdict verdict, const MathComparison& comparison) {
  const std::string_view gold = comparison.gold.substr(0, 60);
  switch (verdict) {
    case MathVerdict::kEqual:
      return Verdict::kCorrect;
    case MathVerdict::kDifferent:
      return Verdict::kWrong;
    case MathVerdict::kNoGold:
      return Verdict::kNoGold;
    case MathVerdict::kTooLong:
      log_warning(text_of("a comparison with the gold answer '", gold, "' exceeded its work limit; the completion's ",
                          "answer counts as wrong"));
      return Verdict::kWrong;
    case MathVerdict::kFailed:
      log_warning(text_of("a comparison with the gold answer '", gold, "' failed; the completion gets no score"));
      return Verdict::kFailed;
  }
  return Verdict::kFailed;
}

}  // namespace

std::string_view gold_text(std::string_view solution) {
  constexpr std::string_view kMark = "####";
  std::size_t at = solution.rfind(kMark);
  while (at != std::string_view::npos && at > 0 && solution[at - 1] != '\n') at = solution.rfind(kMark, at - 1);
  return at == std::string_view::npos ? solution : strip(solution.substr(at + kMark.size()));
}

std::vector<Verdict> judge_answers(std::span<const RewardInput> batch, const RewardOptions& options,
                                   MathWorkers& workers) {
  const auto& keys = options.keys.get<AnswerKeys>();
  std::vector<std::string> golds;
  golds.reserve(batch.size());
  std::vector<MathComparison> comparisons;
  for (const RewardInput& input : batch) {
    golds.push_back(gold_of(input.row));
    const std::string_view text = keys.strict_equality  ? outside_thoughts(input.completion, options.think_prefilled)
                                  : keys.strip_thoughts ? without_thoughts(input.completion)
                                                        : input.completion;
    comparisons.push_back(reward_comparison(gold_text(golds.back()), text, keys.strict_equality));
  }
  const std::vector<MathOutcome> outcomes = workers.compare(comparisons);
  std::vector<Verdict> verdicts;
  verdicts.reserve(outcomes.size());
  for (std::size_t i = 0; i < outcomes.size(); ++i) verdicts.push_back(verdict_of(outcomes[i].verdict, comparisons[i]));
  return verdicts;
}

}  // namespace hone
