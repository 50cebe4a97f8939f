// Finds the runs, evaluations and profiles below a folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// A folder that a command has written.
struct RunFolder {
  std::string id;                        // path below the searched folder; "." is that folder itself
  bool has_metrics = false;              // metrics.jsonl of a training run
  bool has_results = false;              // results.json of an evaluation
  bool has_profile = false;              // kernel_summary.json of a profile
  std::uint64_t metrics_bytes = 0;       // size of metrics.jsonl
  double age = 0;                        // seconds since the latest change of one of these files
  std::vector<std::string> completions;  // files of completions without their ending, such as "step-5" and
                                         // "eval-step-10", in ascending order of steps
};

struct FoundRuns {
  std::vector<RunFolder> runs;  // in natural order: checkpoint-9 before checkpoint-10
  bool is_cut = false;          // there may be more: a limit was reached
};

// Folders are searched to this depth, and at most so many entries of folders are looked at.
inline constexpr int kRunDepth = 4;
inline constexpr std::int64_t kMaxEntries = 20'000;

// Searches a folder. Hidden folders and those that cannot be read are left out. Symbolic links are followed, and a
// folder is visited once. Throws Error if `root` is no folder.
[[nodiscard]] FoundRuns find_runs(const std::filesystem::path& root);

// Returns the path of a file of a run. Throws RequestError with status 404 if `id` is not the form of RunFolder::id, so
// that no client reaches a file outside of `root`.
[[nodiscard]] std::filesystem::path run_file(const std::filesystem::path& root, std::string_view id,
                                             std::string_view file);
// Returns true for names of RunFolder::completions.
[[nodiscard]] bool is_completions_name(std::string_view name);

}  // namespace hone
