// Computes the scores of completions. Independent of the engine: the caller generates the completions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/statistics.h"
#include "eval/task.h"

namespace hone {

// Sampled answer to a problem.
struct EvalSample {
  std::string completion;        // text without special tokens, after the assistant prefill, if any
  std::int64_t token_count = 0;  // tokens of the completion, including EOS
  bool ended = true;             // true: ended by EOS; false: cut by the length limit
};

struct ScoredSample {
  EvalSample sample;
  Judgement judgement;
};

struct ScoredProblem {
  EvalProblem problem;
  std::vector<ScoredSample> samples;
};

struct PassAtK {
  std::int64_t k = 0;
  Estimate estimate;
};

// Score of the problems with the same value in a column.
struct ScoreGroup {
  std::string column;
  std::string value;
  std::int64_t problems = 0;
  Estimate average;
};

struct TaskResult {
  std::string task;
  std::vector<ScoredProblem> problems;
  std::int64_t samples = 0;          // samples per problem
  Estimate average;                  // avg@samples
  std::optional<Estimate> majority;  // maj@samples; absent with one sample, and for tasks without votes
  std::vector<PassAtK> pass;         // k = 1, 2, 4, ... and samples; empty with one sample
  std::vector<ScoreGroup> groups;    // in the order of `group_by`, then by value
  double mean_tokens = 0.0;          // tokens per completion
  double truncated = 0.0;            // fraction of completions that were cut by the length limit
  double without_answer = 0.0;       // fraction of completions in which no answer was found
};

// Judges all samples in parallel and computes the scores. `samples` is [problems][n], with the same n >= 1 for every
// problem. `group_by` are the columns that EvalProblem::groups refers to. The result depends on the arguments only, not
// on the number of threads. If judging fails, throws the exception of the first problem that failed.
[[nodiscard]] TaskResult run_scoring(const EvalTask& task, std::vector<EvalProblem> problems,
                                     std::vector<std::vector<EvalSample>> samples,
                                     std::span<const std::string> group_by = {});

}  // namespace hone
