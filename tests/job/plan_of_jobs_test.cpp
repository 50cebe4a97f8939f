// Tests of `hone plan` next to jobs whose processes divide experts or tokens: a run allocates what is planned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "core/files.h"
#include "core/strings.h"
#include "support/environment.h"
#include "support/miniature.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using ::testing::HasSubstr;

// Sizes of a plan's memory in bytes.
struct PlannedMemory {
  double weights = 0;
  double total = 0;
};

class JobPlan : public ::testing::Test {
 protected:
  JobPlan() {
    write_miniature(folder_.path());
    write_file(folder_.path() / "mixture.json",
               R"({"model_type": "mixtral", "vocab_size": 308, "hidden_size": 32, "intermediate_size": 40,
                   "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
                   "num_experts_per_tok": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
                   "rope_theta": 10000.0, "initializer_range": 0.05, "tie_word_embeddings": false})");
  }

  // Plans a pre-training of two steps with an evaluation in `processes` processes and runs it. Returns what is planned.
  [[nodiscard]] PlannedMemory expect_plan_of_run(int processes, const std::vector<std::string>& more) {
    const std::string output = text_of("run ", runs_++);
    std::vector<std::string> command = pretrain_arguments(
        folder_.path(), {"--model_config_path", (folder_.path() / "mixture.json").string(),
                         "--per_device_train_batch_size", "2", "--num_processes", std::to_string(processes),
                         "--max_steps", "2", "--test_split_size", "0.1", "--eval_strategy", "steps", "--eval_steps",
                         "1", "--device", "cpu", "--output_dir", (folder_.path() / output).string()});
    command.insert(command.end(), more.begin(), more.end());
    std::vector<std::string> plan{"plan"};
    plan.insert(plan.end(), command.begin(), command.end());
    const Ended planned = run_program(plan);
    EXPECT_EQ(planned.code, 0) << planned.output;
    // A run stops if it does not allocate what it plans itself, to the byte; its first line says what that is.
    const Ended ran = run_program(command);
    EXPECT_EQ(ran.code, 0) << ran.output;
    const Line total = line_of(planned.output, "total");
    EXPECT_GT(total.bytes, 0) << planned.output;
    EXPECT_THAT(ran.output, HasSubstr(", " + total.size + " on "));
    return {.weights = line_of(planned.output, "weights").bytes, .total = total.bytes};
  }

 private:
  // "1.50 MiB" and 1572864 of the line "total 1.50 MiB 1,572,864 bytes".
  struct Line {
    std::string size;
    double bytes = 0;
  };

  static Line line_of(const std::string& plan, std::string_view name) {
    for (const std::string& line : split(plan, '\n')) {
      if (!trim(line).starts_with(name) || !line.ends_with(" bytes")) continue;
      std::vector<std::string> words;
      for (const std::string& word : split(std::string(trim(line)), ' ')) {
        if (!word.empty()) words.push_back(word);
      }
      if (words.size() < 4) break;
      const std::size_t bytes = words.size() - 2;
      std::string digits = words[bytes];
      std::erase(digits, ',');
      return {words[bytes - 2] + " " + words[bytes - 1], std::stod(digits)};
    }
    return {};
  }

  TemporaryDirectory folder_;
  // The scratch memory of a GEMM on the CPU depends on its threads, which the launcher divides over the processes.
  Environment threads_{{{"OMP_NUM_THREADS", "1"}}};
  int runs_ = 0;
};

TEST_F(JobPlan, IsThatOfARunOfExpertGroups) {
  const PlannedMemory one = expect_plan_of_run(1, {});
  const PlannedMemory two = expect_plan_of_run(2, {"--expert_parallel_size", "2"});
  const PlannedMemory four = expect_plan_of_run(4, {"--expert_parallel_size", "4"});
  // 4 experts of 3 matrices of 40 x 32 in 2 layers, f32.
  constexpr double kExperts = 4.0 * 3 * 40 * 32 * 2 * 4;
  EXPECT_NEAR(one.weights - two.weights, kExperts / 2, 1024);
  EXPECT_NEAR(one.weights - four.weights, kExperts * 3 / 4, 1024);
  (void)expect_plan_of_run(4, {"--expert_parallel_size", "2", "--zero_stage", "3"});
}

TEST_F(JobPlan, IsThatOfARunOfContextGroups) {
  const PlannedMemory one = expect_plan_of_run(1, {});
  const PlannedMemory two = expect_plan_of_run(2, {"--context_parallel_size", "2"});
  const PlannedMemory four = expect_plan_of_run(4, {"--context_parallel_size", "4"});
  EXPECT_EQ(two.weights, one.weights);
  EXPECT_LT(two.total, one.total);
  EXPECT_LT(four.total, two.total);
  (void)expect_plan_of_run(4, {"--context_parallel_size", "2", "--zero_stage", "2"});
}

TEST_F(JobPlan, IsThatOfARunOfExpertGroupsNextToOthers) {
  const PlannedMemory one = expect_plan_of_run(1, {});
  const PlannedMemory two = expect_plan_of_run(2, {"--expert_parallel_size", "2", "--context_parallel_size", "2"});
  EXPECT_LT(two.weights, one.weights);
  EXPECT_LT(two.total, one.total);
  (void)expect_plan_of_run(4, {"--expert_parallel_size", "2", "--context_parallel_size", "4", "--zero_stage", "3"});
  const PlannedMemory tensor = expect_plan_of_run(2, {"--tensor_parallel_size", "2"});
  EXPECT_LT(tensor.weights, 0.55 * one.weights);
  (void)expect_plan_of_run(4, {"--expert_parallel_size", "2", "--tensor_parallel_size", "2", "--zero_stage", "1"});
  (void)expect_plan_of_run(8, {"--expert_parallel_size", "2", "--tensor_parallel_size", "2", "--context_parallel_size",
                               "2", "--zero_stage", "2"});
}

}  // namespace
}  // namespace hone::test
