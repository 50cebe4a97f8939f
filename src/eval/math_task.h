// What the tasks with mathematical answers share: lighteval's prompt, extraction and comparison.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "eval/task.h"

namespace hone {

// lighteval's math prompt; {problem} stands for the problem.
[[nodiscard]] std::string_view math_prompt_template();
// Replaces each "{column}" of a row's columns; other braces stay. Throws Error where a column holds no text or number.
[[nodiscard]] std::string fill_template(std::string_view text, const Json& row);
// The same for "{problem}" alone, wherever the problem comes from.
[[nodiscard]] std::string fill_problem(std::string_view text, std::string_view problem);

// The gold as Math-Verify reads it; where nothing is found in it, as bare LaTeX ("\sqrt{2}"). Throws Error where that
// fails too.
void check_math_gold(std::string_view gold);
// Answers by priority: "final answer is X. I hope", "final answer ... is", boxes, "answer:", "answer", anything; the
// rightmost first, LaTeX before plain numbers, on to the next where one does not parse; malformed operators repaired.
// In worker processes; who judges many holds shared_math_workers() meanwhile. An answer whose comparison takes too long
// or fails, which is logged, counts as wrong.
// `strict`: by stricter rules, with thoughts left out whatever `strip_thoughts` says.
[[nodiscard]] Judgement judge_math(std::string_view gold, std::string_view completion, bool strip_thoughts,
                                   bool strict = false);

// Says whether two extracted answers mean the same.
[[nodiscard]] std::function<bool(const std::string& a, const std::string& b)> same_math_answer(bool strict);

struct MathColumns {
  std::string_view problem;
  std::string_view gold;     // an answer, or a solution from which it is extracted; behind "####" where that stands
  std::string_view id = {};  // empty: rows are numbered
};
// A task with the math prompt, these columns and judge_math.
[[nodiscard]] EvalTask make_math_task(const TaskOptions& options, const MathColumns& columns);

// A column's text, or its number as text; empty where the row does not have it. Throws Error on any other type.
[[nodiscard]] std::string column_text(const Json& row, std::string_view column);

}  // namespace hone
