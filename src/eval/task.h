// Interface of an evaluation task: reads problems with their prompts and gold answers, and judges completions.
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
  std::string id;                        // id of the row, or its number from "1"
  std::string prompt;                    // text of the user message
  std::string gold;                      // gold answer, in the form that the task's judge reads
  std::string material = {};             // further data for the judge that reports omit, such as a program's tests
  std::vector<std::string> groups = {};  // values of the columns by which scores are grouped, in their order
};

struct Judgement {
  std::string extracted;  // answer that was found in the completion; empty if there is none
  double score = 0.0;     // in [0, 1]
};

// Comparison of answers in the task jsonl.
enum class AnswerMatching { kMath, kExact };
[[nodiscard]] AnswerMatching answer_matching_from_name(std::string_view name);  // throws Error

struct TaskOptions {
  bool strip_thoughts = true;                       // false: also search for the answer in thoughts, as in lighteval
  bool strict_equality = false;                     // mathematical answers: stricter rules than those of lighteval
  std::string prompt_template;                      // {column} is replaced by the row's text; empty: that of the task
  std::string problem_column;                       // jsonl; empty: problem, question or prompt
  std::string answer_column;                        // jsonl; empty: answer or solution
  AnswerMatching matching = AnswerMatching::kMath;  // jsonl
  std::uint64_t seed = 42;                          // gpqa: order of the choices
  SandboxMode sandbox = SandboxMode::kNamespaces;   // lcb
  std::vector<std::string> hidden;                  // lcb: files and folders that programs must not be able to read
};

struct EvalTask {
  std::string name;
  // Published dataset of the problems; empty for a task that reads a file of the user.
  std::string dataset, dataset_config, dataset_split;
  std::vector<std::string> files;  // files to read from a folder of the dataset, if it contains all of them
  std::int64_t samples = 1;        // default number of samples per problem
  // Reads a problem from a row. Throws Error, with the reason only, if the row lacks a column that the task needs.
  std::function<EvalProblem(const Json& row)> read;
  // Judges a completion. Throws Error if the gold answer cannot be read; every completion has a judgement.
  std::function<Judgement(const EvalProblem& problem, std::string_view completion)> judge;
  bool votes = true;  // the samples of a problem can vote (maj@n)
  // Returns true if two answers with different texts are equal; empty: they never are.
  std::function<bool(const std::string& a, const std::string& b)> same;
};

// Reads the problems of a file or, from a folder or dataset, of the task's split ("test" if the task names none), in
// order, at most `limit` (0: all). Throws Error, naming the row, if a row or a gold answer cannot be read: a score over
// fewer problems would not be comparable. `group_by` names the columns whose values become EvalProblem::groups; every
// row must have them.
[[nodiscard]] std::vector<EvalProblem> read_problems(const EvalTask& task, const std::filesystem::path& path,
                                                     std::int64_t limit = 0,
                                                     std::span<const std::string> group_by = {});

}  // namespace hone
