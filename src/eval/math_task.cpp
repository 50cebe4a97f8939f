#include "eval/math_task.h"

#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "math_equality/workers.h"
#include "reward/answers.h"
#include "reward/tags.h"

namespace hone {
namespace {

constexpr ExtractionRule kExtraction = {.expressions = true, .unanchored = true, .boxed_priority = 55};
constexpr AnswerRule kGoldRule = {
    .extraction = kExtraction, .first_match_only = false, .repair = true, .unit_in_prose = true};
constexpr AnswerRule kAnswerRule = {.extraction = kExtraction, .first_match_only = false, .repair = true};

MathComparison comparison_of(std::string_view gold, std::string_view completion, bool strict) {
  return {gold, completion, kGoldRule, kAnswerRule, true, strict};
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
  throw Error("", text_of("column '", column, "' must contain text or a number, not ", place->dump().substr(0, 60)));
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
  if (!read_gold(comparison_of(gold, {}, false)))
    throw Error("", text_of("no answer can be read from the gold answer '", gold.substr(0, 80), "'"));
}

Judgement judge_math(std::string_view gold, std::string_view completion, bool strip_thoughts, bool strict) {
  const std::string_view text = strict           ? outside_thoughts(completion, false)
                                : strip_thoughts ? without_thoughts(completion)
                                                 : completion;
  MathOutcome outcome = shared_math_workers()->compare(comparison_of(gold, text, strict));
  switch (outcome.verdict) {
    case MathVerdict::kEqual:
    case MathVerdict::kDifferent:
      break;
    case MathVerdict::kNoGold:
      throw Error("gold answer", text_of("no answer can be read from '", gold.substr(0, 80), "'"));
    case MathVerdict::kTooLong:
    case MathVerdict::kFailed:
      log_warning(text_of("a comparison with the gold answer '", gold.substr(0, 60),
                          outcome.verdict == MathVerdict::kFailed ? "' failed" : "' exceeded its work limit",
                          "; the answer counts as wrong"));
      break;
  }
  return {std::move(outcome.extracted), outcome.verdict == MathVerdict::kEqual ? 1.0 : 0.0};
}

std::function<bool(const std::string& a, const std::string& b)> same_math_answer(bool strict) {
  return [strict](const std::string& a, const std::string& b) {
    const std::string gold = "$" + a + "$";
    const std::string answer = "$" + b + "$";
    return shared_math_workers()->compare(comparison_of(gold, answer, strict)).verdict == MathVerdict::kEqual;
  };
}

EvalTask make_math_task(const TaskOptions& options, const MathColumns& columns) {
  EvalTask task;
  const std::string prompt(options.prompt_template.empty() ? math_prompt_template() : options.prompt_template);
  task.read = [prompt, columns](const Json& row) {
    const std::string question = column_text(row, columns.problem);
    const std::string gold = column_text(row, columns.gold);
    if (question.empty() || gold.empty()) {
      throw Error("", text_of("the task needs the columns '", columns.problem, "' and '", columns.gold, "'"));
    }
    EvalProblem problem;
    if (!columns.id.empty()) problem.id = column_text(row, columns.id);
    problem.prompt = fill_problem(prompt, question);
    problem.gold = gold_text(gold);
    check_math_gold(problem.gold);
    return problem;
  };
  task.judge = [strip = options.strip_thoughts, strict = options.strict_equality](const EvalProblem& problem,
                                                                                  std::string_view completion) {
    return judge_math(problem.gold, completion, strip, strict);
  };
  task.same = same_math_answer(options.strict_equality);
  return task;
}

}  // namespace hone
