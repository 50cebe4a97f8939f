// What a run says of itself beside its figures: how it starts, what a resumed one changes, that it learns nothing, how
// it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "backend/device.h"
#include "core/json.h"
#include "model/model.h"

namespace hone {

// The first line of a run's log.
struct RunStart {
  std::string title;  // run_title
  std::string model;  // as the recipe names it
  std::string data;   // "prompts.jsonl (40 prompts)"
  std::string work;   // "30 steps of 2 prompts x 4 completions a generation"
  std::size_t bytes = 0;
  std::string output_dir;
};
// "sft: runs/base (1,234 parameters in f32), DATA, WORK, 1.2 GiB on CPU, output in runs/sft".
[[nodiscard]] std::string start_line(const RunStart& start, const Model& model, DType dtype, const Device& device);

// "learning_rate was 0.001, is 0.005; seed was 1, is 2": the keys of two option_json whose values differ, in the order
// of `now`; empty where none do. Keys that only say how to start, or that one of the two does not know, are left out.
[[nodiscard]] std::string changed_keys(const Json& before, const Json& now);

// What is said where a checkpoint holds all the steps that the run asks for.
[[nodiscard]] std::string finished_line(const std::string& output_dir, std::int64_t done, std::int64_t total);

// "sft: wrote runs/sft after 30 steps in 12s, 15,360 tokens": the last line of a run's log.
[[nodiscard]] std::string end_line(const std::string& title, const std::string& output_dir, std::int64_t steps,
                                   double seconds, std::int64_t tokens);

// Counts the steps in a row from which nothing was learned, and says so once.
class IdleWatch {
 public:
  // `cause`: TrainingTask::idle_cause; empty where the step taught something. Returns the remark at the step that makes
  // it kSteps in a row, for the first time; else nothing.
  [[nodiscard]] std::string see(std::string_view cause);

  static constexpr std::int64_t kSteps = 10;

 private:
  std::int64_t steps_ = 0;
  bool said_ = false;
};

}  // namespace hone
