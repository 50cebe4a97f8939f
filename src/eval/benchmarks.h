// Checkpoints scored by hone's own tasks while a run goes on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "eval/task.h"
#include "model/loaded_model.h"

namespace hone {

// Names as open-r1 has them: "all" is its six tasks; "none" is none.
[[nodiscard]] std::vector<std::string> benchmark_names(const std::vector<std::string>& names);

struct BenchmarkTask {
  EvalTask task;
  std::vector<EvalProblem> problems;
};
// The tasks with their problems. "NAME=PATH": problems that lie there; else they are where the task's are published.
// Throws Error.
[[nodiscard]] std::vector<BenchmarkTask> read_benchmarks(const std::vector<std::string>& names, std::uint64_t seed);

}  // namespace hone
