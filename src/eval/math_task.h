// Shared parts of the tasks with mathematical answers: prompt, extraction and comparison of lighteval.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "eval/task.h"

namespace hone {

// Returns the math prompt of lighteval, with {problem} in place of the problem.
[[nodiscard]] std::string_view math_prompt_template();
// Replaces each "{NAME}" by the row's column of this name; other braces remain. Throws Error if the column contains
// neither a text nor a number.
[[nodiscard]] std::string fill_template(std::string_view text, const Json& row);
// Replaces "{problem}" by the problem; other braces remain.
[[nodiscard]] std::string fill_problem(std::string_view text, std::string_view problem);

// Throws Error if no gold answer can be read from the text: neither by the patterns of Math-Verify nor as bare LaTeX
// ("\sqrt{2}").
void check_math_gold(std::string_view gold);
// Extracts the answer of a completion and compares it with the gold answer, in a worker process. Callers that judge
// many answers should hold shared_math_workers() meanwhile.
//
// Candidate answers are tried by priority: "final answer is X. I hope", "final answer ... is", boxes, "answer:",
// "answer", then anything; within a priority the rightmost first and LaTeX before plain numbers. If one does not parse,
// the next one is tried. Malformed operators are repaired. An answer whose comparison fails or exceeds its limit counts
// as wrong, which is logged. `strict` applies the strict rules and ignores thoughts regardless of `strip_thoughts`.
[[nodiscard]] Judgement judge_math(std::string_view gold, std::string_view completion, bool strip_thoughts,
                                   bool strict = false);

// Returns a function that compares two extracted answers.
[[nodiscard]] std::function<bool(const std::string& a, const std::string& b)> same_math_answer(bool strict);

struct MathColumns {
  std::string_view problem;
  std::string_view gold;     // an answer, or a solution from which it is extracted; reduced by gold_text()
  std::string_view id = {};  // empty: rows are numbered
};
// Returns a task with the math prompt, these columns and judge_math().
[[nodiscard]] EvalTask make_math_task(const TaskOptions& options, const MathColumns& columns);

// Returns the text of a column, or its number as text; empty if it is missing or null. Throws Error for other types.
[[nodiscard]] std::string column_text(const Json& row, std::string_view column);

}  // namespace hone
