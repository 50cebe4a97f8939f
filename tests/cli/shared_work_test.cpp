// Tests generate and eval with the work divided over processes: the results are those of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "cli/program.h"
#include "cli/replica_processes.h"
#include "cli/small_model.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

class SharedWork : public SmallModelTest {
 protected:
  static void SetUpTestSuite() {
    ASSERT_NO_FATAL_FAILURE(SmallModelTest::SetUpTestSuite());
    std::string rows;
    for (int i = 0; i < 7; ++i)
      rows += Json{{"problem", text_of("What is ", i, " + 2?")}, {"answer", std::to_string(i + 2)}}.dump() + "\n";
    write_file(at("problems.jsonl"), rows);
  }
  [[nodiscard]] static std::vector<std::string> generate(const std::string& to, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"generate",
                                       "--model_name_or_path",
                                       at("model"),
                                       "--dataset_name",
                                       at("problems.jsonl"),
                                       "--device",
                                       "cpu",
                                       "--num_generations",
                                       "3",
                                       "--max_new_tokens",
                                       "20",
                                       "--require_end",
                                       "false",
                                       "--output_dir",
                                       at(to)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  [[nodiscard]] static std::vector<std::string> eval(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval",
                                       at("model"),
                                       "--dataset_name",
                                       at("problems.jsonl"),
                                       "--device",
                                       "cpu",
                                       "--samples",
                                       "3",
                                       "--max_model_len",
                                       "60",
                                       "--prompt_template",
                                       "{problem}"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // The rows of a journal in the order of their text.
  [[nodiscard]] static std::vector<std::string> sorted_rows(const std::string& name) {
    std::vector<std::string> rows = split(read_file(at(name)), '\n');
    std::ranges::sort(rows);
    return rows;
  }
  // The table of an evaluation.
  [[nodiscard]] static std::string table_of(const std::string& output) {
    std::string table;
    for (const std::string& line : split(output, '\n'))
      table += line.starts_with("hone: ") || line.starts_with("eval ") ? "" : line + "\n";
    return table;
  }
  static void expect_no_parts(const std::string& name) {
    for (const std::string& file : list_folder(at(name))) EXPECT_EQ(file.find(".part-"), std::string::npos) << file;
  }
};

TEST_F(SharedWork, GenerationsAreThoseOfOneProcess) {
  const Ended one = run_program(generate("one", {}));
  ASSERT_EQ(one.code, 0) << one.output;
  const Ended several = run_program(generate("several", {"--data_parallel_size", "3"}));
  ASSERT_EQ(several.code, 0) << several.output;
  EXPECT_THAT(several.output, HasSubstr("dividing the work over 3 processes"));
  EXPECT_EQ(sorted_rows("several/generations.jsonl"), sorted_rows("one/generations.jsonl"));
  EXPECT_EQ(read_file(at("several/data.jsonl")), read_file(at("one/data.jsonl")));
  expect_no_parts("several");
}

// A run does not repeat what the processes of a killed run have done.
TEST_F(SharedWork, PartsOfAKilledRunAreTaken) {
  ASSERT_EQ(run_program(generate("whole", {})).code, 0);
  copy_folder(at("whole"), at("killed"));
  const std::vector<std::string> rows = split(read_file(at("whole/generations.jsonl")), '\n');
  write_file(at("killed/generations.jsonl"), rows[0] + "\n");
  write_file(at("killed/generations.part-1.jsonl"), rows[0] + "\n" + rows[1] + "\n" + rows[2].substr(0, 9));
  write_file(at("killed/generations.part-5.jsonl"), rows[3] + "\n");
  const Ended again = run_program(generate("killed", {"--data_parallel_size", "2"}));
  ASSERT_EQ(again.code, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("3 of "));
  EXPECT_EQ(sorted_rows("killed/generations.jsonl"), sorted_rows("whole/generations.jsonl"));
  EXPECT_EQ(read_file(at("killed/data.jsonl")), read_file(at("whole/data.jsonl")));
  expect_no_parts("killed");
}

TEST_F(SharedWork, EvaluationsAreThoseOfOneProcess) {
  const Ended one = run_program(eval({"--output_dir", at("eval-one")}));
  ASSERT_EQ(one.code, 0) << one.output;
  const Ended several = run_program(eval({"--output_dir", at("eval-several"), "--data_parallel_size", "2"}));
  ASSERT_EQ(several.code, 0) << several.output;
  EXPECT_EQ(table_of(several.output), table_of(one.output));
  EXPECT_EQ(read_file(at("eval-several/samples.jsonl")), read_file(at("eval-one/samples.jsonl")));
  EXPECT_EQ(list_folder(at("eval-several")), list_folder(at("eval-one")));
  const Ended without_folder = run_program(eval({"--data_parallel_size", "2"}));
  EXPECT_EQ(without_folder.code, 0);
  EXPECT_EQ(table_of(without_folder.output), table_of(one.output)) << without_folder.output;
}

TEST_F(SharedWork, EachProcessMayBeATensorGroup) {
  Json config = read_json(at("model.json"));
  config["num_key_value_heads"] = 2;
  write_json(at("model.json"), config);
  const Ended made = run_program(pretrain_arguments(
      at(""), {"--max_steps", "1", "--per_device_train_batch_size", "2", "--output_dir", at("two-heads")}));
  ASSERT_EQ(made.code, 0) << made.output;
  const Ended ended = run_program({"eval", at("two-heads"), "--dataset_name", at("problems.jsonl"), "--device", "cpu",
                                   "--max_model_len", "60", "--prompt_template", "{problem}", "--data_parallel_size",
                                   "2", "--tensor_parallel_size", "2"});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("dividing the work over 2 processes"));
}

TEST_F(SharedWork, TheEndOfOneEndsAll) {
  const TemporaryDirectory folder;
  const pid_t first = start_program(
      generate("ended", {"--data_parallel_size", "2", "--num_generations", "100000", "--max_new_tokens", "200"}),
      folder.path() / "log");
  std::vector<pid_t> others;
  while (others.empty() && is_running(first)) others = ranks_of(first);
  ASSERT_EQ(others.size(), 1U);
  ::kill(others[0], SIGKILL);
  EXPECT_EQ(wait_for(first), 1);
  EXPECT_THAT(read_file(folder.path() / "log"), HasSubstr("replica 1: was ended by signal 9 (Killed)"));
}

TEST_F(SharedWork, CtrlCStopsAll) {
  const TemporaryDirectory folder;
  const pid_t first = start_program(
      generate("stopped", {"--data_parallel_size", "2", "--num_generations", "100000", "--max_new_tokens", "200"}),
      folder.path() / "log");
  std::vector<pid_t> others;
  while (others.empty() && is_running(first)) others = ranks_of(first);
  ASSERT_EQ(others.size(), 1U);
  while (!is_file(at("stopped/settings.json")) && is_running(first)) {
  }
  ::kill(first, SIGINT);
  EXPECT_EQ(wait_for(first), 130);
  while (::kill(others[0], 0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST_F(SharedWork, AMistakeIsReportedOnce) {
  std::vector<std::string> arguments = eval({"--data_parallel_size", "3"});
  arguments[1] = at("no-model");
  const Ended ended = run_program(arguments);
  EXPECT_EQ(ended.code, 1);
  std::size_t lines = 0;
  for (const std::string& line : split(ended.output, '\n')) lines += line.starts_with("hone: error") ? 1 : 0;
  EXPECT_EQ(lines, 1U) << ended.output;
}

// A stage of a pipeline starts processes that do the stage's work.
TEST_F(SharedWork, StagesOfAPipelineMayHaveSeveralProcesses) {
  write_file(at("pipeline.yaml"),
             text_of("output_dir: ", at("pipeline"), "\nmodel_name_or_path: ", at("model"), "\ndataset_name: ",
                     at("problems.jsonl"), "\nstages:\n  - {stage: rejection_sampling, num_generations: 2, ",
                     "max_new_tokens: 20, require_end: false, reward_funcs: length, min_reward: -100, device: cpu, ",
                     "data_parallel_size: 2}\n  - {stage: sft, max_steps: 2, num_processes: 2, device: cpu, ",
                     "per_device_train_batch_size: 2, max_length: 64}\n"));
  const Ended ended = run_program({"pipeline", at("pipeline.yaml")});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(is_file(at("pipeline/01-rejection_sampling/data.jsonl")));
  EXPECT_TRUE(is_file(at("pipeline/02-sft/model.safetensors"))) << ended.output;
}

TEST(ReplicaProcesses, EachHasItsOwnGpus) {
  EXPECT_EQ(devices_of_replica("", 0, 1), "0");
  EXPECT_EQ(devices_of_replica("", 2, 2), "4,5");
  EXPECT_EQ(devices_of_replica("7,GPU-a,3,1", 1, 2), "3,1");
}

TEST(ReplicaProcesses, AWrongVariableIsAnError) {
  for (const char* value : {"x", "1", "2/2:/tmp", "-1/2:/tmp", "0/2"}) {
    ::setenv("HONE_REPLICA", value, 1);
    const Ended ended = run_program({"eval", "none"});
    ::unsetenv("HONE_REPLICA");
    EXPECT_EQ(ended.code, 1) << value;
    EXPECT_THAT(ended.output, HasSubstr("hone: error: HONE_REPLICA: is ")) << value;
  }
}

}  // namespace
}  // namespace hone::test
