// Reads the evaluation tasks that score the checkpoints of a training run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "eval/task.h"
#include "model/loaded_model.h"

namespace hone {

// Expands the names of open-r1: "all" stands for its six tasks, "none" for no task.
[[nodiscard]] std::vector<std::string> benchmark_names(const std::vector<std::string>& names);

struct BenchmarkTask {
  EvalTask task;
  std::vector<EvalProblem> problems;
};
// Returns the tasks with their problems. "NAME=PATH" reads the problems from a file or folder; "NAME" reads them from
// the dataset that the task names. Throws Error if a task is unknown or its problems cannot be read.
[[nodiscard]] std::vector<BenchmarkTask> read_benchmarks(const std::vector<std::string>& names, std::uint64_t seed);

}  // namespace hone
