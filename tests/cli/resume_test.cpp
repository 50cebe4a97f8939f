// Tests that runs that are killed and started again have the losses and the weights of an uninterrupted run.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "core/random.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "train/metrics.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

int run_to_end(const std::vector<std::string>& arguments, const fs::path& log) {
  return wait_for(start_program(arguments, log));
}

std::vector<double> losses_of(const fs::path& output) {
  return metric_series(read_metrics(output / "metrics.jsonl"), "loss").values;
}

std::vector<std::string> with_output(std::vector<std::string> arguments, const fs::path& output) {
  arguments.insert(arguments.end(), {"--output_dir", output.string()});
  return arguments;
}

// Kills a run at `kills` random times, then lets it finish, and compares the result with an uninterrupted run. If the
// run finishes before its kill, the kill does not count: the run starts over, and later kills come earlier.
void check_kills(const TemporaryDirectory& folder, const std::vector<std::string>& arguments, int kills,
                 std::uint64_t seed) {
  const fs::path log = folder.path() / "log";
  const fs::path whole = folder.path() / ("whole-" + arguments[0]);
  const fs::path killed = folder.path() / ("killed-" + arguments[0]);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(run_to_end(with_output(arguments, whole), log), 0) << read_file(log);
  const auto whole_time = std::chrono::steady_clock::now() - begin;
  auto span = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(whole_time).count());
  const RandomStream random(seed, "kill");
  int done = 0;
  for (std::uint64_t i = 0; done < kills; ++i) {
    const pid_t child = start_program(with_output(arguments, killed), log);
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(i, span)));
    ::kill(child, SIGKILL);
    const int code = wait_for(child);
    if (code == 128 + SIGKILL) {
      ++done;
    } else {
      ASSERT_EQ(code, 0) << read_file(log);
      fs::remove_all(killed);
      span = std::max<std::uint64_t>(span * 3 / 4, 1);
    }
  }
  ASSERT_EQ(run_to_end(with_output(arguments, killed), log), 0) << read_file(log);
  EXPECT_EQ(losses_of(killed), losses_of(whole));
  EXPECT_EQ(read_file(killed / "model.safetensors"), read_file(whole / "model.safetensors"));
}

// Kills pre-training of the model in `config` and GRPO, with more keys, on its result.
void check_pretraining_and_grpo(const fs::path& config, int kills, const std::vector<std::string>& more_of_grpo = {}) {
  const TemporaryDirectory folder;
  write_miniature(folder.path());
  if (!config.empty()) fs::copy_file(config, folder.path() / "model.json", fs::copy_options::overwrite_existing);
  const auto path = [&](const char* relative) { return (folder.path() / relative).string(); };
  const std::vector<std::string> pretrain = pretrain_arguments(
      folder.path(), {"--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2", "--max_steps", "30",
                      "--save_steps", "3", "--save_total_limit", "2", "--learning_rate", "2e-3"});
  check_kills(folder, pretrain, kills, 1);
  std::vector<std::string> grpo{"grpo",
                                "--model_name_or_path",
                                path("whole-pretrain"),
                                "--dataset_name",
                                path("data/prompts.jsonl"),
                                "--dataset_prompt_column",
                                "problem",
                                "--num_generations",
                                "4",
                                "--per_device_train_batch_size",
                                "8",
                                "--num_iterations",
                                "2",
                                "--max_completion_length",
                                "12",
                                "--max_steps",
                                "8",
                                "--logging_steps",
                                "1",
                                "--save_steps",
                                "1",
                                "--learning_rate",
                                "1e-3",
                                "--beta",
                                "0.02",
                                "--reward_funcs",
                                "tag_count,length"};
  grpo.insert(grpo.end(), more_of_grpo.begin(), more_of_grpo.end());
  check_kills(folder, grpo, kills * 2 / 3, 2);
}

TEST(Resume, PretrainingAndGrpoGoOnBitForBit) { check_pretraining_and_grpo({}, 12); }

TEST(Resume, AGenerationThatHasBegunGoesOnBitForBit) { check_pretraining_and_grpo({}, 6, {"--max_staleness", "1"}); }

TEST(Resume, DeepseekGoesOnBitForBit) { check_pretraining_and_grpo(fixture("models") / "deepseek_v3/config.json", 6); }

std::size_t lines_of(const fs::path& path) {
  if (!is_file(path)) return 0;
  const std::string text = read_file(path);
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

TEST(Resume, AnEvaluationThatIsKilledLeavesTheSameBytes) {
  const TemporaryDirectory folder;
  write_miniature(folder.path());
  const auto path = [&](const char* relative) { return (folder.path() / relative).string(); };
  const fs::path log = folder.path() / "log";
  ASSERT_EQ(run_to_end(pretrain_arguments(folder.path(), {"--max_steps", "20", "--per_device_train_batch_size", "4",
                                                          "--save_strategy", "no", "--output_dir", path("model")}),
                       log),
            0)
      << read_file(log);
  const std::vector<std::string> arguments{"eval",
                                           path("model"),
                                           "--dataset_name",
                                           path("data/prompts.jsonl"),
                                           "--prompt_template",
                                           "{problem}",
                                           "--samples",
                                           "4",
                                           "--temperature",
                                           "1",
                                           "--max_model_len",
                                           "96",
                                           "--max_num_seqs",
                                           "4",
                                           "--output_dir",
                                           path("out")};
  ASSERT_EQ(run_to_end(arguments, log), 0) << read_file(log);
  fs::rename(path("out"), path("whole"));  // results.json contains the path of the folder
  const std::size_t all = lines_of(folder.path() / "whole" / "samples.jsonl");
  ASSERT_EQ(all, 160u);

  // Kills the evaluation once `count` answers are stored; with 0, before the first answer.
  const fs::path answers = folder.path() / "out" / "answers.jsonl";
  const auto kill_at_answers = [&](std::size_t count) {
    const pid_t child = start_program(arguments, log);
    while ((count == 0 ? !is_folder(path("out")) : lines_of(answers) < count) && is_running(child)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::kill(child, SIGKILL);
    return wait_for(child);
  };
  std::size_t before = 0;
  for (const std::size_t kill_at : {0, 1, 30, 31, 75, 120}) {
    copy_folder(path("out"), path("so far"));
    for (;;) {
      const int code = kill_at_answers(kill_at);
      if (code == 128 + SIGKILL && lines_of(answers) < all) break;
      ASSERT_TRUE(code == 0 || code == 128 + SIGKILL) << read_file(log);
      copy_folder(path("so far"), path("out"));  // it had finished before this process checked: try again
    }
    EXPECT_GE(lines_of(answers), std::max(before, kill_at));
    before = lines_of(answers);
    EXPECT_FALSE(is_file(folder.path() / "out" / "results.json"));
  }
  EXPECT_LT(before, all);
  // A kill during a write leaves an incomplete line.
  append_file(answers, R"({"completion":"half of an ans)");
  ASSERT_EQ(run_to_end(arguments, log), 0) << read_file(log);
  EXPECT_NE(read_file(log).find(text_of(before, " of 160 answers are already done")), std::string::npos);
  for (const char* name : {"samples.jsonl", "results.json"}) {
    EXPECT_EQ(read_file(folder.path() / "out" / name), read_file(folder.path() / "whole" / name)) << name;
  }
  EXPECT_EQ(list_folder(path("out")), list_folder(path("whole")));
}

TEST(Resume, AnInterruptSavesAndSaysSo) {
  const TemporaryDirectory folder;
  write_miniature(folder.path());
  const std::vector<std::string> arguments =
      pretrain_arguments(folder.path(), {"--per_device_train_batch_size", "2", "--max_steps", "100000000",
                                         "--save_strategy", "no", "--output_dir", (folder.path() / "out").string()});
  const pid_t child = start_program(arguments, folder.path() / "log");
  while (!is_file(folder.path() / "out" / "metrics.jsonl") && is_running(child)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::kill(child, SIGINT);
  EXPECT_EQ(wait_for(child), 130);
  EXPECT_NE(read_file(folder.path() / "log").find("the same command continues from there"), std::string::npos);
  bool saved = false;
  for (const std::string& name : list_folder(folder.path() / "out")) saved = saved || name.starts_with("checkpoint-");
  EXPECT_TRUE(saved);
}

}  // namespace
}  // namespace hone::test
