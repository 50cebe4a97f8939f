// A page that sets evaluations side by side.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/statistics.h"

namespace hone {

struct ComparedSample {
  std::string completion;
  std::string extracted;
  double score = 0.0;
};

// A problem of a run's task, with its samples.
struct ComparedProblem {
  std::string id;
  std::string prompt;
  std::string gold;
  double score = 0.0;  // mean over its samples
  std::vector<ComparedSample> samples;
};

struct ComparedScore {
  std::string name;  // "avg@4"
  Estimate estimate;
};

struct ComparedTask {
  std::string name;
  std::vector<ComparedScore> scores;
  std::vector<ComparedProblem> problems;
};

struct ComparedRun {
  std::string name;   // the folder's, longer where two would be the same
  std::string model;  // as the settings name it
  std::vector<ComparedTask> tasks;
};

// What write_report wrote into the folders. Throws Error.
[[nodiscard]] std::vector<ComparedRun> read_runs(std::span<const std::string> folders);

// The sample of a problem to show of all these runs: the first whose scores differ, else whose answers, else whose
// completions do; 0 where none differs. Runs without the problem are null.
[[nodiscard]] std::size_t sample_to_show(std::span<const ComparedProblem* const> runs);

// The difference of two runs' scores over the problems that both have, by id, prompt and gold; nothing where there is
// none.
struct PairedDifference {
  Estimate estimate;  // second minus first
  std::int64_t problems = 0;
  std::int64_t better = 0;  // problems on which the second is above
  std::int64_t worse = 0;
};
[[nodiscard]] std::optional<PairedDifference> paired_difference(const ComparedTask& first, const ComparedTask& second);

// One HTML file that refers to nothing else: scores with their intervals, differences to the first run, and for each
// task the problems on which the runs differ most, at most `most`, with an answer of each that differs.
[[nodiscard]] std::string comparison_page(std::span<const ComparedRun> runs, std::size_t most = 40);

}  // namespace hone
