#include "eval/task.h"

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "data/dataset.h"
#include "data/source.h"
#include "eval/math_task.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// Thrown through for_each_row() to stop at the limit.
struct Enough {};

// Returns the paths of the task's files in a folder; none if the folder lacks one of them.
std::vector<fs::path> named_files(const EvalTask& task, const fs::path& folder) {
  std::vector<fs::path> files;
  for (const std::string& name : task.files) {
    if (is_file(folder / name)) files.push_back(folder / name);
  }
  return files.size() == task.files.size() ? files : std::vector<fs::path>{};
}

// Opens a file as a whole, or the task's split of a folder or of a dataset of the hub.
Source open_problems(const EvalTask& task, const fs::path& path) {
  if (is_file(path)) return {path, {}};
  const bool is_local = is_folder(path);
  if (!is_local && !task.files.empty()) {
    throw Error("dataset_name", text_of(path.string(), " is not a folder"),
                text_of("use the folder that contains ", join(task.files, " and "), " of ", task.dataset));
  }
  return open_dataset({.name = path.string(), .config = is_local ? "" : task.dataset_config},
                      {.split = task.dataset_split.empty() ? "test" : task.dataset_split});
}

// Returns the value of a column by which scores are grouped.
std::string group_of(const Json& row, const std::string& column) {
  std::string value = column_text(row, column);
  if (value.empty())
    throw Error("group_by", text_of("column '", column, "' is missing or empty"), "name another column");
  return value;
}

}  // namespace

AnswerMatching answer_matching_from_name(std::string_view name) {
  if (name == "math") return AnswerMatching::kMath;
  if (name == "exact") return AnswerMatching::kExact;
  throw Error("matching", text_of("'", name, "' is unknown"), "use math or exact");
}

std::vector<EvalProblem> read_problems(const EvalTask& task, const std::filesystem::path& path, std::int64_t limit,
                                       std::span<const std::string> group_by) {
  std::vector<EvalProblem> problems;
  BadRows bad;
  const auto visit = [&](Json& row, const RowPlace& place) {
    try {
      problems.push_back(task.read(row));
      for (const std::string& column : group_by) problems.back().groups.push_back(group_of(row, column));
    } catch (const Error& error) {
      throw Error(text_of(*place.file, " ", place.unit, " ", place.number), error.what(), "task " + task.name);
    }
    if (problems.back().id.empty()) problems.back().id = std::to_string(problems.size());
    if (limit > 0 && static_cast<std::int64_t>(problems.size()) >= limit) throw Enough();
  };
  try {
    for (const fs::path& file : named_files(task, path)) Source(file, {}).for_each_row(bad, visit);
    if (named_files(task, path).empty()) open_problems(task, path).for_each_row(bad, visit);
  } catch (const Enough&) {
    HONE_ASSERT(std::ssize(problems) == limit, problems.size(), " problems, but the limit is ", limit, " problems");
  }
  if (bad.count() > 0) throw Error(path.string(), "a row cannot be read: " + bad.first().front());
  if (problems.empty()) throw Error(path.string(), "has no problems for task " + task.name);
  return problems;
}

}  // namespace hone
