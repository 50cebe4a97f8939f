// Compares evaluation runs and renders the comparison as an HTML page.
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

// Problem of a task in one run, with its samples.
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
  std::string name;   // name of the folder; its path if several runs have the same name
  std::string model;  // model_name_or_path of the settings
  std::vector<ComparedTask> tasks;
};

// Reads the files that write_report() has written to the folders. Throws Error if a file is missing or malformed.
[[nodiscard]] std::vector<ComparedRun> read_runs(std::span<const std::string> folders);

// Returns the index of the sample to show for one problem in all runs: the first one with different scores, otherwise
// with different answers, otherwise with different completions; 0 if there are no differences. An entry is null if the
// run lacks the problem.
[[nodiscard]] std::size_t sample_to_show(std::span<const ComparedProblem* const> runs);

// Difference of the scores of two runs over their common problems.
struct PairedDifference {
  Estimate estimate;          // second minus first
  std::int64_t problems = 0;  // common problems
  std::int64_t better = 0;    // problems on which the second run scores higher
  std::int64_t worse = 0;     // problems on which it scores lower
};
// Pairs problems by id, prompt and gold answer. Returns nothing if the runs have no common problem.
[[nodiscard]] std::optional<PairedDifference> paired_difference(const ComparedTask& first, const ComparedTask& second);

// Returns a self-contained HTML page: for each task the scores with their intervals, the differences to the first run,
// and the `most` problems on which the runs differ most, with one sample of each run.
[[nodiscard]] std::string comparison_page(std::span<const ComparedRun> runs, std::size_t most = 40);

}  // namespace hone
