#include "reward/answers.h"

#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "reward/characters.h"
#include "reward/math/answer.h"
#include "reward/tags.h"

namespace hone {
namespace {

std::string gold_of(const Json* row) {
  HONE_ASSERT(row != nullptr && row->is_object(), "a reward that needs a gold was called without its row");
  for (const char* column : {"solution", "answer"}) {
    const auto place = row->find(column);
    if (place == row->end() || place->is_null()) continue;
    if (place->is_string()) return place->get<std::string>();
    if (place->is_number()) return place->dump();
    throw Error(text_of("column '", column, "'"),
                text_of("the gold must be text or a number, not ", place->dump().substr(0, 60)));
  }
  std::string columns;
  for (const auto& [name, value] : row->items()) columns += (columns.empty() ? "" : ", ") + name;
  throw Error("reward", "the data has neither a column 'solution' nor 'answer' (columns: " + columns + ")",
              "accuracy, length and cosine need a gold");
}

}  // namespace

std::string_view gold_text(std::string_view solution) {
  constexpr std::string_view kMark = "####";
  std::size_t at = solution.rfind(kMark);
  while (at != std::string_view::npos && at > 0 && solution[at - 1] != '\n') at = solution.rfind(kMark, at - 1);
  return at == std::string_view::npos ? solution : strip(solution.substr(at + kMark.size()));
}

Verdict judge_answer(const RewardInput& input, const RewardOptions& options) {
  const std::string solution = gold_of(input.row);
  const auto gold = parse_gold(gold_text(solution));
  if (!gold) return Verdict::no_gold;
  const auto answer = parse_answer(options.strip_thoughts ? without_thoughts(input.completion) : input.completion);
  return answer && equal(*gold, *answer) ? Verdict::correct : Verdict::wrong;
}

}  // namespace hone
