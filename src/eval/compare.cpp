#include "eval/compare.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "data/source.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

std::optional<double> number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

ComparedTask task_of(const std::string& name, const Json& result) {
  ComparedTask task{.name = name};
  for (const auto& [key, score] : result.items()) {
    if (!score.is_object()) continue;
    const std::optional<double> value = number_at(score, "value");
    if (!value) continue;
    task.scores.push_back({key, Estimate{.value = *value,
                                         .standard_error = number_at(score, "standard_error"),
                                         .low = number_at(score, "low"),
                                         .high = number_at(score, "high")}});
  }
  return task;
}

void add_sample(ComparedRun& run, const Json& row) {
  const auto task = std::ranges::find(run.tasks, row.at("task").get<std::string>(), &ComparedTask::name);
  if (task == run.tasks.end()) throw Error("", "belongs to a task that results.json does not contain");
  const auto id = row.at("id").get<std::string>();
  const double score = row.at("score").get<double>();
  if (row.at("sample") == 0) {
    task->problems.push_back({.id = id,
                              .prompt = row.at("prompt").get<std::string>(),
                              .gold = row.at("gold").get<std::string>(),
                              .samples = {}});
  }
  if (task->problems.empty() || task->problems.back().id != id)
    throw Error("", "the first sample of its problem is missing");
  ComparedProblem& problem = task->problems.back();
  problem.samples.push_back({.completion = row.at("completion").get<std::string>(),
                             .extracted = row.at("extracted").get<std::string>(),
                             .score = score});
  problem.score += (score - problem.score) / static_cast<double>(problem.samples.size());
}

ComparedRun read_run(const fs::path& folder) {
  const Json results = read_json(folder / "results.json");
  ComparedRun run{.name = fs::absolute(folder).lexically_normal().filename().string()};
  if (run.name.empty()) run.name = fs::absolute(folder).lexically_normal().parent_path().filename().string();
  try {
    run.model = results.at("settings").value("model_name_or_path", "");
    for (const auto& [name, result] : results.at("tasks").items()) run.tasks.push_back(task_of(name, result));
  } catch (const Json::exception&) {
    throw Error((folder / "results.json").string(), "is not a result file of hone eval");
  }
  BadRows bad;
  Source(folder / "samples.jsonl", {}).for_each_row(bad, [&](const Json& row, const RowPlace& place) {
    const std::string where = text_of(*place.file, " ", place.unit, " ", place.number);
    try {
      add_sample(run, row);
    } catch (const Json::exception&) {
      throw Error(where, "is not a sample of hone eval");
    } catch (const Error& error) {
      throw Error(where, error.what());
    }
  });
  if (bad.count() > 0) throw Error((folder / "samples.jsonl").string(), bad.first().front());
  return run;
}

std::string key_of(const ComparedProblem& problem) { return problem.id + '\0' + problem.gold + '\0' + problem.prompt; }

}  // namespace

std::vector<ComparedRun> read_runs(std::span<const std::string> folders) {
  std::vector<ComparedRun> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto same = std::ranges::count(runs, runs[i].name, &ComparedRun::name);
    if (same > 1) runs[i].name = folders[i];
  }
  return runs;
}

std::size_t sample_to_show(std::span<const ComparedProblem* const> runs) {
  std::vector<const ComparedProblem*> there;
  std::ranges::copy_if(runs, std::back_inserter(there), [](const auto* problem) { return problem != nullptr; });
  if (there.size() < 2) return 0;
  const std::size_t count =
      std::ranges::min(there, {}, [](const auto* problem) { return problem->samples.size(); })->samples.size();
  const auto first_difference = [&](auto part) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto differs = [&](const auto* problem) {
        return problem->samples[i].*part != there.front()->samples[i].*part;
      };
      if (std::ranges::any_of(there, differs)) return i;
    }
    return count;
  };
  std::size_t index = first_difference(&ComparedSample::score);
  if (index == count) index = first_difference(&ComparedSample::extracted);
  if (index == count) index = first_difference(&ComparedSample::completion);
  return index == count ? 0 : index;
}

std::optional<PairedDifference> paired_difference(const ComparedTask& first, const ComparedTask& second) {
  std::unordered_map<std::string, double> scores;
  for (const ComparedProblem& problem : first.problems) scores[key_of(problem)] = problem.score;
  std::vector<double> differences;
  PairedDifference paired;
  for (const ComparedProblem& problem : second.problems) {
    const auto found = scores.find(key_of(problem));
    if (found == scores.end()) continue;
    const double difference = problem.score - found->second;
    differences.push_back(difference);
    paired.better += difference > 0 ? 1 : 0;
    paired.worse += difference < 0 ? 1 : 0;
  }
  if (differences.empty()) return std::nullopt;
  paired.problems = std::ssize(differences);
  paired.estimate = estimate_difference(differences);
  return paired;
}

}  // namespace hone
