// Reports the results of an evaluation as a table, as results.json and as one line per sample.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "core/json.h"
#include "eval/scoring.h"

namespace hone {

// Returns an aligned table with these columns: task, problems, score, value with standard error and 95% interval, mean
// tokens, share of truncated completions, share of completions without an answer. Each task has lines for avg@n, maj@n,
// each pass@k and each group. The table ends with a newline.
[[nodiscard]] std::string report_table(std::span<const TaskResult> results);

// Returns the content of results.json:
//   {"settings": ..., "tasks": {NAME: {"problems", "samples", "avg@N": {"value", "standard_error", "low", "high"},
//    "maj@N", "pass@K": ..., "groups": {COLUMN: {VALUE: {"problems", "value", ...}}}, "mean_tokens", "truncated",
//    "without_answer"}}}
// With a single problem the standard error and the interval are null.
[[nodiscard]] Json results_json(std::span<const TaskResult> results, const Json& settings);

// Returns one line of JSON per sample, in order, with the keys task, id, sample, prompt, gold, completion, extracted,
// score, tokens and ended.
[[nodiscard]] std::string samples_jsonl(std::span<const TaskResult> results);

// Writes FOLDER/results.json and FOLDER/samples.jsonl and creates the folder if necessary. Throws Error.
void write_report(const std::filesystem::path& folder, std::span<const TaskResult> results, const Json& settings);

}  // namespace hone
