// What an evaluation task is: problems, prompts, golds, and how an answer is found and judged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "reward/reward.h"

namespace hone {

struct EvalProblem {
  std::string id;                        // "1" for the first row, or the row's own id
  std::string prompt;                    // one user message
  std::string gold;                      // as text; the judge knows how to read it
  std::string material = {};             // what the judge needs beyond that, for nobody else's eyes: a program's tests
  std::vector<std::string> groups = {};  // values of the columns that scores are grouped by, in their order
};

struct Judgement {
  std::string extracted;  // the answer that was found; empty where there is none
  double score = 0.0;     // in [0, 1]
};

// How answers of a user's own task are compared.
enum class AnswerMatching { math, exact };
[[nodiscard]] AnswerMatching answer_matching_from_name(std::string_view name);  // throws Error

struct TaskOptions {
  bool strip_thoughts = true;                      // false: thoughts count when the answer is sought, as in lighteval
  bool strict_equality = false;                    // mathematical answers: stricter rules than lighteval's
  std::string prompt_template;                     // empty: the task's own; {column} stands for a column's text
  std::string problem_column;                      // jsonl; empty: problem, question or prompt
  std::string answer_column;                       // jsonl; empty: answer or solution
  AnswerMatching matching = AnswerMatching::math;  // jsonl
  std::uint64_t seed = 42;                         // gpqa: of the right answer's place among the choices
  SandboxMode sandbox = SandboxMode::namespaces;   // lcb
  std::vector<std::string> hidden;                 // lcb: what programs must not be able to read
};

struct EvalTask {
  std::string name;
  // Where the problems are published; empty for a task on the user's file.
  std::string dataset, dataset_config, dataset_split;
  std::vector<std::string> files;  // of a folder of the published problems these, where it has them all
  std::int64_t samples = 1;        // a problem, unless told otherwise
  // Throws Error with the reason alone where the row lacks what the task needs.
  std::function<EvalProblem(const Json& row)> read;
  // Throws Error where the gold cannot be read; any completion has a judgement.
  std::function<Judgement(const EvalProblem& problem, std::string_view completion)> judge;
  // Whether answers can be counted against each other (maj@n), and whether two that differ as texts are the same one;
  // empty: they are not.
  bool votes = true;
  std::function<bool(const std::string& a, const std::string& b)> same;
};

// All problems of a file, or of the task's split of a folder (test, where it names none), in order, at most `limit` (0:
// all). A row that cannot be used is an error that names its place, as is a gold that cannot be read: a score over
// fewer problems would compare with nothing. `group_by`: columns whose values become each problem's groups; every row
// must have them.
[[nodiscard]] std::vector<EvalProblem> read_problems(const EvalTask& task, const std::filesystem::path& path,
                                                     std::int64_t limit = 0,
                                                     std::span<const std::string> group_by = {});

}  // namespace hone
