#include "eval/benchmarks.h"

#include <algorithm>

#include "core/error.h"
#include "core/yaml.h"
#include "eval/registry.h"

namespace hone {

std::vector<std::string> benchmark_names(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    if (name == "all") {
      all.insert(all.end(), {"math_500", "aime24", "aime25", "gpqa:diamond", "lcb", "lcb_v4"});
    } else if (name != "none" && yaml_boolean(name) != false) {
      all.push_back(name);
    }
  }
  return all;
}

std::vector<BenchmarkTask> read_benchmarks(const std::vector<std::string>& names, std::uint64_t seed) {
  TaskRegistry registry;
  register_all_eval(registry);
  std::vector<BenchmarkTask> benchmarks;
  for (const std::string& entry : benchmark_names(names)) {
    const std::size_t equals = entry.find('=');
    EvalTask task = registry.make(entry.substr(0, equals), {.seed = seed});
    const auto is_same = [&](const BenchmarkTask& other) { return other.task.name == task.name; };
    if (std::ranges::any_of(benchmarks, is_same)) throw Error("", text_of(shown(task.name), " is named twice"));
    const std::string data = equals == std::string::npos ? task.dataset : entry.substr(equals + 1);
    if (data.empty()) throw Error("", text_of(shown(entry), " names no problems"), task.name + "=FILE");
    std::vector<EvalProblem> problems = read_problems(task, data);
    benchmarks.push_back({std::move(task), std::move(problems)});
  }
  return benchmarks;
}

}  // namespace hone
