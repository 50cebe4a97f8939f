// Tests that the memory of a process does not grow over a long run.
#include <gtest/gtest.h>

#include "cli/program.h"
#include "core/files.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "train/metrics.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

constexpr double kMib = 1.0 / 1024;  // GiB per MiB

// Returns the growth of the process's resident memory from step `settled` to the last step, in GiB.
double growth(const fs::path& output, double settled) {
  const MetricSeries memory = metric_series(read_metrics(output / "metrics.jsonl"), "process_memory_gib");
  for (std::size_t i = 0; i < memory.steps.size(); ++i) {
    if (memory.steps[i] == settled) return memory.values.back() - memory.values[i];
  }
  ADD_FAILURE() << "no row of step " << settled;
  return 0;
}

TEST(Memory, IsFlatOverLongRuns) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers allocate memory themselves";
#endif
  const TemporaryDirectory folder;
  write_miniature(folder.path());
  const fs::path pretrained = folder.path() / "pretrained";
  const Ended pretrain = run_program(
      pretrain_arguments(folder.path(), {"--per_device_train_batch_size", "1", "--max_steps", "2000", "--logging_steps",
                                         "100", "--save_strategy", "no", "--output_dir", pretrained.string()}));
  ASSERT_EQ(pretrain.code, 0) << pretrain.output;
  EXPECT_LT(growth(pretrained, 400), kMib);

  const fs::path tuned = folder.path() / "tuned";
  const Ended grpo = run_program({"grpo",
                                  "--model_name_or_path",
                                  pretrained.string(),
                                  "--dataset_name",
                                  (folder.path() / "data" / "prompts.jsonl").string(),
                                  "--dataset_prompt_column",
                                  "problem",
                                  "--num_generations",
                                  "4",
                                  "--per_device_train_batch_size",
                                  "8",
                                  "--max_completion_length",
                                  "12",
                                  "--max_steps",
                                  "200",
                                  "--logging_steps",
                                  "20",
                                  "--save_strategy",
                                  "no",
                                  "--reward_funcs",
                                  "tag_count,length",
                                  "--output_dir",
                                  tuned.string()});
  ASSERT_EQ(grpo.code, 0) << grpo.output;
  EXPECT_LT(growth(tuned, 40), kMib);
}

}  // namespace
}  // namespace hone::test
