// From completions to scores. Whoever generates hands the completions over; nothing here knows the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/statistics.h"
#include "eval/task.h"

namespace hone {

// One sampled answer to a problem.
struct EvalSample {
  std::string completion;        // without special tokens, an assistant prefill prepended
  std::int64_t token_count = 0;  // of the completion, EOS included
  bool ended = true;             // by EOS, rather than by the length limit
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

// The problems that have one value in a column.
struct ScoreGroup {
  std::string column;
  std::string value;
  std::int64_t problems = 0;
  Estimate average;
};

struct TaskResult {
  std::string task;
  std::vector<ScoredProblem> problems;
  std::int64_t samples = 0;          // a problem
  Estimate average;                  // avg@samples
  std::optional<Estimate> majority;  // maj@samples; absent where samples is 1, and for tasks without votes
  std::vector<PassAtK> pass;         // k = 1, 2, 4 ... and samples; empty where samples is 1
  std::vector<ScoreGroup> groups;    // by column as asked, then by value
  double mean_tokens = 0.0;          // of a completion
  double truncated = 0.0;            // share of completions that did not end
  double without_answer = 0.0;       // share of completions in which no answer was found
};

// `samples`: [problems][n], the same n for every problem, at least one. `group_by`: the columns of the problems'
// groups. In parallel; the result depends on the arguments alone.
[[nodiscard]] TaskResult run_scoring(const EvalTask& task, std::vector<EvalProblem> problems,
                                     std::vector<std::vector<EvalSample>> samples,
                                     std::span<const std::string> group_by = {});

}  // namespace hone
