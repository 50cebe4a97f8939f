// What an evaluation leaves behind: a table, results.json, and every sample.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "core/json.h"
#include "eval/scoring.h"

namespace hone {

// Columns in line: task, problems, score (avg@n, then lines for maj@n and each pass@k), value with standard error and
// 95% interval, mean tokens, shares of truncated completions and of those without an answer; then a line for each
// group. Ends with a newline.
[[nodiscard]] std::string report_table(std::span<const TaskResult> results);

// {"settings": ..., "tasks": {NAME: {"problems", "samples", "avg@N": {"value", "standard_error", "low", "high"},
// "maj@N", "pass@K": ..., "groups": {COLUMN: {VALUE: {"problems", "value", ...}}}, "mean_tokens", "truncated",
// "without_answer"}}}. Where there is one problem the error is
// null.
[[nodiscard]] Json results_json(std::span<const TaskResult> results, const Json& settings);

// One line a sample, in order: task, id, sample, prompt, gold, completion, extracted, score, tokens, ended.
[[nodiscard]] std::string samples_jsonl(std::span<const TaskResult> results);

// Writes FOLDER/results.json and FOLDER/samples.jsonl; creates the folder. Throws Error.
void write_report(const std::filesystem::path& folder, std::span<const TaskResult> results, const Json& settings);

}  // namespace hone
