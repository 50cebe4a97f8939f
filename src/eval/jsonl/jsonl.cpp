// Task jsonl: problems of the user, from a file with columns for the problem and the answer.
#include <initializer_list>

#include "core/characters.h"
#include "core/error.h"
#include "core/json_value.h"
#include "eval/math_task.h"
#include "eval/registry.h"
#include "reward/answers.h"
#include "reward/tags.h"

namespace hone {
namespace {

// Returns the text of the named column or, if none is named, of the first usual column that has a text.
std::string text_of_column(const Json& row, const std::string& named, std::initializer_list<const char*> usual,
                           std::string_view option) {
  if (!named.empty()) {
    const std::string text = column_text(row, named);
    if (text.empty()) throw Error("", text_of("column '", named, "' is missing or empty"), std::string(option));
    return text;
  }
  std::string names;
  for (const char* column : usual) {
    if (std::string text = column_text(row, column); !text.empty()) return text;
    names.append(names.empty() ? "" : ", ").append(column);
  }
  throw Error("", "none of the columns " + names + " contains text", "name the column with " + std::string(option));
}

EvalProblem read_row(const Json& row, const TaskOptions& options) {
  const std::string question =
      text_of_column(row, options.problem_column, {"problem", "question", "prompt"}, "problem_column");
  const std::string answer = text_of_column(row, options.answer_column, {"answer", "solution"}, "answer_column");
  EvalProblem problem;
  problem.id = column_text(row, "id");
  Json columns = row;
  columns["problem"] = question;
  const bool math = options.matching == AnswerMatching::kMath;
  const std::string_view own = math ? math_prompt_template() : std::string_view("{problem}");
  problem.prompt =
      fill_template(options.prompt_template.empty() ? own : std::string_view(options.prompt_template), columns);
  problem.gold = math ? gold_text(answer) : std::string_view(answer);
  if (math) check_math_gold(problem.gold);
  return problem;
}

// Scores 1 if the whole stripped answer is the gold answer.
Judgement judge_exact(std::string_view gold, std::string_view completion, bool strip_thoughts) {
  const std::string_view answer = strip(strip_thoughts ? without_thoughts(completion) : completion);
  return {std::string(answer), answer == strip(gold) ? 1.0 : 0.0};
}

}  // namespace

void register_jsonl(TaskRegistry& registry) {
  registry.add("jsonl", [](const TaskOptions& options) {
    EvalTask task;
    task.read = [options](const Json& row) { return read_row(row, options); };
    task.judge = [options](const EvalProblem& problem, std::string_view completion) {
      return options.matching == AnswerMatching::kMath
                 ? judge_math(problem.gold, completion, options.strip_thoughts, options.strict_equality)
                 : judge_exact(problem.gold, completion, options.strip_thoughts);
    };
    if (options.matching == AnswerMatching::kMath) task.same = same_math_answer(options.strict_equality);
    return task;
  });
}

}  // namespace hone
