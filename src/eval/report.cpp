#include "eval/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"

namespace hone {
namespace {

// Formats an estimate as "45.3% +- 1.4 (42.6-48.0)".
std::string describe(const Estimate& estimate) {
  std::string text = percent_text(estimate.value) + "%";
  if (estimate.standard_error && estimate.low && estimate.high) {
    text += text_of(" +- ", percent_text(*estimate.standard_error), " (", percent_text(*estimate.low), "-",
                    percent_text(*estimate.high), ")");
  }
  return text;
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json json_of(const Estimate& estimate) {
  return {{"value", estimate.value},
          {"standard_error", json_of(estimate.standard_error)},
          {"low", json_of(estimate.low)},
          {"high", json_of(estimate.high)}};
}

using Row = std::vector<std::string>;

std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string report_table(std::span<const TaskResult> results) {
  std::vector<Row> rows = {
      {"task", "problems", "score", "value +- standard error (95% interval)", "tokens", "truncated", "no answer"}};
  for (const TaskResult& result : results) {
    rows.push_back({result.task, std::to_string(result.problems.size()), text_of("avg@", result.samples),
                    describe(result.average), text_of(std::llround(result.mean_tokens)),
                    percent_text(result.truncated) + "%", percent_text(result.without_answer) + "%"});
    if (result.majority) rows.push_back({"", "", text_of("maj@", result.samples), describe(*result.majority)});
    for (const auto& [k, estimate] : result.pass) rows.push_back({"", "", text_of("pass@", k), describe(estimate)});
    for (const ScoreGroup& group : result.groups) {
      rows.push_back({text_of("  ", group.column, " ", group.value), std::to_string(group.problems),
                      text_of("avg@", result.samples), describe(group.average)});
    }
  }
  return aligned(rows);
}

Json results_json(std::span<const TaskResult> results, const Json& settings) {
  Json tasks = Json::object();
  for (const TaskResult& result : results) {
    Json task = {{"problems", result.problems.size()}, {"samples", result.samples}};
    task[text_of("avg@", result.samples)] = json_of(result.average);
    if (result.majority) task[text_of("maj@", result.samples)] = json_of(*result.majority);
    for (const auto& [k, estimate] : result.pass) task[text_of("pass@", k)] = json_of(estimate);
    for (const ScoreGroup& group : result.groups) {
      Json& row = task["groups"][group.column][group.value];
      row = json_of(group.average);
      row["problems"] = group.problems;
    }
    task["mean_tokens"] = result.mean_tokens;
    task["truncated"] = result.truncated;
    task["without_answer"] = result.without_answer;
    tasks[result.task] = std::move(task);
  }
  return {{"settings", settings}, {"tasks", std::move(tasks)}};
}

std::string samples_jsonl(std::span<const TaskResult> results) {
  std::string text;
  for (const TaskResult& result : results) {
    for (const ScoredProblem& scored : result.problems) {
      for (std::size_t i = 0; i < scored.samples.size(); ++i) {
        const auto& [sample, judgement] = scored.samples[i];
        const Json row = {{"task", result.task},
                          {"id", scored.problem.id},
                          {"sample", i},
                          {"prompt", scored.problem.prompt},
                          {"gold", scored.problem.gold},
                          {"completion", sample.completion},
                          {"extracted", judgement.extracted},
                          {"score", judgement.score},
                          {"tokens", sample.token_count},
                          {"ended", sample.ended}};
        text += row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
      }
    }
  }
  return text;
}

void write_report(const std::filesystem::path& folder, std::span<const TaskResult> results, const Json& settings) {
  hone::create_directories(folder);
  write_file(folder / "samples.jsonl", samples_jsonl(results));
  write_json(folder / "results.json", results_json(results, settings));
}

}  // namespace hone
