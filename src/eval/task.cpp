#include "eval/task.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/source.h"

namespace hone {
namespace {

// Thrown through for_each_row to stop early.
struct Enough {};

}  // namespace

AnswerMatching answer_matching_from_name(std::string_view name) {
  if (name == "math") return AnswerMatching::math;
  if (name == "exact") return AnswerMatching::exact;
  throw Error("matching", text_of("'", name, "' is not known"), "math or exact");
}

std::vector<EvalProblem> read_problems(const EvalTask& task, const std::filesystem::path& path, std::int64_t limit) {
  std::vector<EvalProblem> problems;
  BadRows bad;
  SourceOptions options;
  if (std::filesystem::is_directory(path)) options.split = task.dataset_split.empty() ? "test" : task.dataset_split;
  const Source source(path, options);
  try {
    source.for_each_row(bad, [&](Json& row, const RowPlace& place) {
      try {
        problems.push_back(task.read(row));
      } catch (const Error& error) {
        throw Error(text_of(*place.file, " ", place.unit, " ", place.number), error.what(), "task " + task.name);
      }
      if (problems.back().id.empty()) problems.back().id = std::to_string(problems.size());
      if (limit > 0 && static_cast<std::int64_t>(problems.size()) >= limit) throw Enough();
    });
  } catch (const Enough&) {
  }
  if (bad.count() > 0) throw Error(path.string(), "a row cannot be read: " + bad.first().front());
  if (problems.empty()) throw Error(path.string(), "has no problems for task " + task.name);
  return problems;
}

}  // namespace hone
