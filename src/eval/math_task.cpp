#include "eval/math_task.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "reward/math/answer.h"
#include "reward/tags.h"

namespace hone {
namespace {

constexpr AnswerRule kGoldRule = {.extraction = {.expressions = true, .unanchored = true, .boxed_priority = 55},
                                  .first_match_only = false,
                                  .repair = true};
constexpr AnswerRule kAnswerRule = kGoldRule;

std::optional<MathAnswer> read_gold(std::string_view gold) {
  if (auto found = parse_math(gold, kGoldRule)) return found;
  return parse_math("$" + std::string(gold) + "$", kGoldRule);
}

}  // namespace

std::string_view math_prompt_template() {
  return "Solve the following math problem efficiently and clearly.  The last line of your response should be of the "
         "following format: 'Therefore, the final answer is: $\\boxed{ANSWER}$. I hope it is correct' (without quotes) "
         "where ANSWER is just the final number or expression that solves the problem. Think step by step before "
         "answering.\n\n{problem}";
}

std::string column_text(const Json& row, std::string_view column) {
  const auto place = row.find(std::string(column));
  if (place == row.end() || place->is_null()) return {};
  if (place->is_string()) return place->get<std::string>();
  if (place->is_number()) return place->dump();
  throw Error("", text_of("column '", column, "' must hold text or a number, not ", place->dump().substr(0, 60)));
}

std::string fill_template(std::string_view text, const Json& row) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t close = text[at] == '{' ? text.find('}', at) : std::string_view::npos;
    const std::string column(close == std::string_view::npos ? "" : text.substr(at + 1, close - at - 1));
    if (!column.empty() && row.contains(column)) {
      result += column_text(row, column);
      at = close + 1;
    } else {
      result += text[at++];
    }
  }
  return result;
}

std::string fill_problem(std::string_view text, std::string_view problem) {
  return fill_template(text, Json{{"problem", problem}});
}

void check_math_gold(std::string_view gold) {
  if (!read_gold(gold)) throw Error("", text_of("no answer can be read from the gold '", gold.substr(0, 80), "'"));
}

Judgement judge_math(std::string_view gold_text, std::string_view completion, bool strip_thoughts) {
  const auto gold = read_gold(gold_text);
  if (!gold) throw Error("gold", text_of("no answer can be read from '", gold_text.substr(0, 80), "'"));
  const auto answer = parse_math(strip_thoughts ? without_thoughts(completion) : completion, kAnswerRule);
  if (!answer) return {};
  return {answer->text, equal(*gold, *answer) ? 1.0 : 0.0};
}

}  // namespace hone
