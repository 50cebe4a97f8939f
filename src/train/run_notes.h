// Notices of a run: its first and last line, the options that a resumed run changes, and a warning if it does not
// learn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "backend/device.h"
#include "core/json.h"
#include "model/model.h"

namespace hone {

// Content of the first line of a run's log.
struct RunStart {
  std::string title;      // run_title
  std::string model;      // as named in the recipe
  std::string data;       // "prompts.jsonl (40 prompts)"
  std::string work;       // "30 steps of 2 prompts x 4 completions a generation"
  std::size_t bytes = 0;  // device memory of the run
  std::string output_dir;
};
// Returns "sft: runs/base (1,234 parameters in f32), DATA, WORK, 1.2 GiB on CPU, output in runs/sft".
[[nodiscard]] std::string start_line(const RunStart& start, const Model& model, DType dtype, const Device& device);

// Returns "learning_rate was 0.001, is 0.005; seed was 1, is 2": the options whose values differ, in the order of
// `now`; empty if there is none. Options that only affect the start of a run, and those that one of the two lacks, are
// omitted. before, now: option_json of the two runs.
[[nodiscard]] std::string changed_keys(const Json& before, const Json& now);

// Returns the notice for a checkpoint that already has all steps that the options ask for.
[[nodiscard]] std::string finished_line(const std::string& output_dir, std::int64_t done, std::int64_t total);

// Returns the last line of a run's log: "sft: wrote runs/sft after 30 steps in 12s, 15,360 tokens".
[[nodiscard]] std::string end_line(const std::string& title, const std::string& output_dir, std::int64_t steps,
                                   double seconds, std::int64_t tokens);

// Counts consecutive steps from which nothing was learned, and reports them once.
class IdleDetector {
 public:
  // Adds a step. cause: TrainingTask::idle_cause, empty if the step changed the weights usefully. Returns the warning
  // when kSteps consecutive steps have a cause for the first time, otherwise an empty string.
  [[nodiscard]] std::string see(std::string_view cause);

  static constexpr std::int64_t kSteps = 10;

 private:
  std::int64_t steps_ = 0;
  bool said_ = false;
};

}  // namespace hone
