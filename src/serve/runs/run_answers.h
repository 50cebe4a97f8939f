// Answers requests for runs, for the page that shows them: which there are, their metrics, completions and evaluations.
#pragma once

#include <filesystem>

#include "http/message.h"

namespace hone {

// Answers GET requests whose paths begin with /runs; `root` is the folder of the runs.
//
//   /runs                                          {"root", "cut", "runs": [{"id", "metrics", "bytes", "age",
//                                                  "completions", "results", "profile"}]}
//   /runs/metrics?run=ID&from=OFFSET&check=TEXT    {"rows": [{"step", NAME: number or null}], "bad", "restarted",
//                                                  "next", "check", "size"}: rows of metrics.jsonl
//   /runs/completions?run=ID&file=NAME&from=...    the same with completions of hone grpo as rows
//   /runs/results?run=ID                           results.json of an evaluation, its settings only in part
//   /runs/profile?run=ID                           kernel_summary.json of a profile, its lists cut at kMaxShownRows
//   /runs/samples?run=ID&from=...&check=...        the same as metrics with the samples of an evaluation as rows
//
// Rows are read from an offset of the file on; the answer's `next` and `check` are the next request's. A file that has
// been replaced meanwhile is read from its beginning, and the answer says so. Lines that are not rows are counted in
// `bad`. Long texts are cut at kMaxShownBytes. Throws RequestError.
[[nodiscard]] ServerResponse answer_runs(const std::filesystem::path& root, const ServerRequest& request);

// Most bytes of a text of a completion, a prompt or a sample.
inline constexpr std::size_t kMaxShownBytes = 32 << 10;
// Most rows of a list of a profile.
inline constexpr std::size_t kMaxShownRows = 1000;

}  // namespace hone
