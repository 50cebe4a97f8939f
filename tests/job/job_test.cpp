// Tests of training in several processes of this machine: the losses of one process, the same bits again, resuming with
// another number of processes, and ranks that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <thread>

#include "cli/program.h"
#include "core/files.h"
#include "core/random.h"
#include "core/strings.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "system/meeting.h"
#include "train/metrics.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Returns the process ids of the ranks that a process has started, by rank.
std::vector<pid_t> ranks_of(pid_t parent) {
  std::vector<pid_t> ranks;
  std::ifstream in("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  for (pid_t id = 0; in >> id;) ranks.push_back(id);
  return ranks;
}

std::size_t lines_of(const fs::path& file) {
  if (!is_file(file)) return 0;
  const std::string text = read_file(file);
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

class Job : public ::testing::Test {
 protected:
  Job() { write_miniature(folder_.path()); }

  // Arguments of a pre-training of 8 sequences a step, over an evaluation and the end of an epoch.
  [[nodiscard]] std::vector<std::string> arguments(const std::string& output, int processes,
                                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = pretrain_arguments(folder_.path(), {"--per_device_train_batch_size",
                                                                       "2",
                                                                       "--gradient_accumulation_steps",
                                                                       std::to_string(4 / processes),
                                                                       "--num_processes",
                                                                       std::to_string(processes),
                                                                       "--max_steps",
                                                                       "24",
                                                                       "--save_steps",
                                                                       "4",
                                                                       "--learning_rate",
                                                                       "2e-3",
                                                                       "--device",
                                                                       "cpu",
                                                                       "--test_split_size",
                                                                       "0.1",
                                                                       "--eval_strategy",
                                                                       "steps",
                                                                       "--eval_steps",
                                                                       "8",
                                                                       "--output_dir",
                                                                       path(output).string()});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Arguments of GRPO on 4 prompts x 4 completions a step.
  [[nodiscard]] std::vector<std::string> grpo_arguments(const std::string& output, int processes,
                                                        const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"grpo",
                                 "--model_name_or_path",
                                 path("model").string(),
                                 "--dataset_name",
                                 path("data/prompts.jsonl").string(),
                                 "--dataset_prompt_column",
                                 "problem",
                                 "--reward_funcs",
                                 "tag_count,length",
                                 "--num_generations",
                                 "4",
                                 "--per_device_train_batch_size",
                                 "4",
                                 "--gradient_accumulation_steps",
                                 std::to_string(4 / processes),
                                 "--num_processes",
                                 std::to_string(processes),
                                 "--max_completion_length",
                                 "24",
                                 "--max_steps",
                                 "6",
                                 "--save_steps",
                                 "2",
                                 "--logging_steps",
                                 "1",
                                 "--learning_rate",
                                 "1e-3",
                                 "--device",
                                 "cpu",
                                 "--output_dir",
                                 path(output).string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] fs::path path(const std::string& relative) const { return folder_.path() / relative; }

  [[nodiscard]] std::vector<double> series(const std::string& output, std::string_view metric) const {
    return metric_series(read_metrics(path(output) / "metrics.jsonl"), std::string(metric)).values;
  }

  void expect_near(const std::string& a, const std::string& b, std::string_view metric) const {
    const std::vector<double> one = series(a, metric);
    const std::vector<double> other = series(b, metric);
    ASSERT_EQ(one.size(), other.size()) << metric;
    ASSERT_FALSE(one.empty()) << metric;
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 1e-5) << metric << ", line " << i;
  }

  void run(const std::string& output, int processes, const std::vector<std::string>& more = {}) const {
    const Ended ended = run_program(arguments(output, processes, more));
    ASSERT_EQ(ended.code, 0) << ended.output;
  }

  // Starts a job and returns when its metrics have `lines` lines, or it has ended.
  [[nodiscard]] pid_t start_until(const std::vector<std::string>& command, const fs::path& log,
                                  const std::string& output, std::size_t lines) const {
    const pid_t job = start_program(command, log);
    while (lines_of(path(output) / "metrics.jsonl") < lines && is_running(job)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return job;
  }

  // Kills one of a job's ranks: the job ends with one line, which names it, and nothing of it is left.
  static void kill_rank(pid_t job, std::size_t processes, int victim, const fs::path& log) {
    const std::vector<pid_t> ranks = ranks_of(job);
    ASSERT_EQ(ranks.size(), processes) << read_file(log);
    ::kill(ranks[static_cast<std::size_t>(victim)], SIGKILL);
    EXPECT_NE(wait_for(job), 0);
    const std::string said = read_file(log);
    EXPECT_THAT(said, HasSubstr("hone: error: rank " + std::to_string(victim) + " (")) << said;
    EXPECT_THAT(said, HasSubstr("has ended (step ")) << said;
    std::size_t errors = 0;
    for (const std::string& line : split(said, '\n')) errors += line.starts_with("hone: error") ? 1 : 0;
    EXPECT_EQ(errors, 1u) << said;
    for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0);
  }

  [[nodiscard]] std::string weights(const std::string& output) const {
    return read_file(path(output) / "model.safetensors");
  }

  TemporaryDirectory folder_;
};

TEST_F(Job, ProcessesHaveTheLossesOfOneWithMoreBatches) {
  run("one", 1);
  for (const int processes : {2, 4}) {
    const std::string output = std::to_string(processes);
    run(output, processes);
    for (const char* metric :
         {"loss", "eval_loss", "grad_norm", "entropy", "mean_token_accuracy", "num_tokens", "epoch"}) {
      expect_near(output, "one", metric);
    }
  }
}

TEST_F(Job, TheSameJobHasTheSameBits) {
  run("a", 2);
  run("b", 2, {"--gradient_checkpointing", "true"});
  EXPECT_EQ(weights("a"), weights("b"));
  EXPECT_EQ(series("a", "loss"), series("b", "loss"));
}

TEST_F(Job, ARunContinuesWithAnotherNumberOfProcesses) {
  run("whole", 2);
  run("parts", 2, {"--max_steps", "8", "--lr_scheduler_type", "constant"});
  run("parts", 4, {"--max_steps", "16", "--lr_scheduler_type", "constant"});
  run("parts", 1, {"--lr_scheduler_type", "constant"});
  run("constant", 2, {"--lr_scheduler_type", "constant"});
  expect_near("parts", "constant", "loss");
  // With the same number the bits are those of an uninterrupted run.
  run("again", 2, {"--max_steps", "24"});
  fs::remove_all(path("again") / "checkpoint-24");
  fs::remove_all(path("again") / "checkpoint-20");
  run("again", 2);
  EXPECT_EQ(weights("again"), weights("whole"));
}

TEST_F(Job, FineTuningHasTheLossesOfOneProcess) {
  run("model", 1);
  const auto tune = [&](const std::string& output, int processes) {
    const Ended ended = run_program({"sft",
                                     "--model_name_or_path",
                                     path("model").string(),
                                     "--dataset_name",
                                     path("data/sft.jsonl").string(),
                                     "--per_device_train_batch_size",
                                     "2",
                                     "--gradient_accumulation_steps",
                                     std::to_string(4 / processes),
                                     "--num_processes",
                                     std::to_string(processes),
                                     "--num_train_epochs",
                                     "2",
                                     "--logging_steps",
                                     "1",
                                     "--device",
                                     "cpu",
                                     "--learning_rate",
                                     "1e-3",
                                     "--lora_dropout",
                                     "0",
                                     "--use_peft",
                                     "true",
                                     "--output_dir",
                                     path(output).string()});
    ASSERT_EQ(ended.code, 0) << ended.output;
  };
  tune("tuned one", 1);
  tune("tuned two", 2);
  expect_near("tuned two", "tuned one", "loss");
  expect_near("tuned two", "tuned one", "grad_norm");
}

TEST_F(Job, DividedStatesChangeNoBit) {
  const std::vector<std::vector<std::string>> kinds{
      {},
      {"--torch_dtype", "bfloat16"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_8bit"},
      {"--optim", "muon"}};
  for (const std::vector<std::string>& kind : kinds) {
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), kind.begin(), kind.end());
      return more;
    };
    const std::string name = kind.empty() ? "plain" : kind.back() + std::to_string(kind.size());
    run(name + " whole", 2, with({}));
    run(name + " divided", 2, with({"--zero_stage", "1"}));
    EXPECT_EQ(weights(name + " divided"), weights(name + " whole")) << name;
    EXPECT_EQ(series(name + " divided", "loss"), series(name + " whole", "loss")) << name;
    // A checkpoint of divided states continues with whole ones, and the other way around, with other numbers of ranks.
    fs::create_directories(path(name + " joined"));
    fs::create_directories(path(name + " parted"));
    fs::copy(path(name + " divided") / "checkpoint-8", path(name + " joined") / "checkpoint-8",
             fs::copy_options::recursive);
    run(name + " joined", 2, with({"--max_steps", "24"}));
    EXPECT_EQ(weights(name + " joined"), weights(name + " whole")) << name;
    fs::copy(path(name + " whole") / "checkpoint-8", path(name + " parted") / "checkpoint-8",
             fs::copy_options::recursive);
    run(name + " parted", 2, with({"--zero_stage", "1"}));
    EXPECT_EQ(weights(name + " parted"), weights(name + " whole")) << name;
  }
  run("four whole", 4);
  run("four divided", 4, {"--zero_stage", "1"});
  EXPECT_EQ(weights("four divided"), weights("four whole"));
}

TEST_F(Job, DividedStatesContinueWithAnotherNumberOfProcesses) {
  const std::vector<std::string> constant{"--lr_scheduler_type", "constant", "--zero_stage", "1"};
  const auto until = [&](const char* steps) {
    std::vector<std::string> more = constant;
    more.insert(more.end(), {"--max_steps", steps});
    return more;
  };
  run("whole", 2, until("24"));
  run("parts", 4, until("8"));
  run("parts", 2, until("16"));
  run("parts", 1, until("24"));
  expect_near("parts", "whole", "loss");
}

// A model whose matrices are large enough to be divided among four ranks.
const std::vector<std::string> kWide{"--config_overrides", "hidden_size=256,intermediate_size=768,num_hidden_layers=2",
                                     "--max_steps",        "4",
                                     "--save_steps",       "2",
                                     "--eval_steps",       "2"};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(Job, DividedGradientsAndWeightsChangeNoBit) {
  const std::vector<std::vector<std::string>> kinds{
      {},
      {"--torch_dtype", "bfloat16"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_8bit", "--gradient_checkpointing", "true"},
      {"--optim", "sgd", "--optim_args", "momentum=0.9"},
      {"--optim", "muon"}};
  for (const std::vector<std::string>& kind : kinds) {
    const std::string name = kind.empty() ? "plain" : kind.back() + std::to_string(kind.size());
    // One micro-batch a step, in which the sums over ranks are the same whether they follow each micro-batch or a step.
    const auto at = [&](const char* stage) {
      return joined(joined(kWide, kind), {"--zero_stage", stage, "--per_device_train_batch_size", "4",
                                          "--gradient_accumulation_steps", "1"});
    };
    run(name + " 1", 2, at("1"));
    for (const char* stage : {"2", "3"}) {
      const std::string output = name + " " + stage;
      run(output, 2, at(stage));
      EXPECT_EQ(weights(output), weights(name + " 1")) << output;
      for (const char* metric : {"loss", "grad_norm", "eval_loss"})
        EXPECT_EQ(series(output, metric), series(name + " 1", metric)) << output;
      // A checkpoint of each stage continues in another one.
      const std::string other = std::string(stage) == "2" ? "3" : "0";
      const std::string continued = output + " continued";
      fs::create_directories(path(continued));
      fs::copy(path(output) / "checkpoint-2", path(continued) / "checkpoint-2", fs::copy_options::recursive);
      run(continued, 2, at(other.c_str()));
      EXPECT_EQ(weights(continued), weights(name + " 1")) << continued;
    }
  }
}

TEST_F(Job, DividedWeightsOfFourRanksContinueOnTwo) {
  const auto at = [&](const char* stage, const char* steps) {
    return joined(kWide, {"--zero_stage", stage, "--lr_scheduler_type", "constant", "--max_steps", steps});
  };
  run("four 1", 4, at("1", "8"));
  for (const char* stage : {"2", "3"}) {
    run(std::string("four ") + stage, 4, at(stage, "8"));
    EXPECT_EQ(weights(std::string("four ") + stage), weights("four 1"));
  }
  run("parts", 4, at("3", "4"));
  run("parts", 2, at("3", "6"));
  run("parts", 1, at("3", "8"));
  expect_near("parts", "four 1", "loss");
}

TEST_F(Job, DividedGradientsOfSeveralMicroBatchesAreThoseOfOneProcess) {
  // The second rank has fewer micro-batches in the last step of an epoch.
  const std::vector<std::string> more = joined(kWide, {"--max_steps", "24", "--learning_rate", "1e-3"});
  run("one", 1, more);
  run("two 2", 2, joined(more, {"--zero_stage", "2"}));
  run("two 3", 2, joined(more, {"--zero_stage", "3"}));
  EXPECT_EQ(weights("two 3"), weights("two 2"));
  for (const char* metric : {"loss", "eval_loss", "grad_norm"}) expect_near("two 3", "one", metric);
}

// Returns the words of the line of a plan's memory that begins with `name`.
std::vector<std::string> line_of_plan(const std::string& plan, const std::string& name) {
  for (const std::string& line : split(plan, '\n')) {
    if (!trim(line).starts_with(name) || !line.ends_with(" bytes")) continue;
    std::vector<std::string> words;
    for (const std::string& word : split(std::string(trim(line)), ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    return words;
  }
  return {};
}

TEST_F(Job, ThePlanOfDividedWeightsIsThatOfTheRun) {
  // The scratch memory of a GEMM on the CPU depends on its threads, which the launcher divides over the processes.
  ::setenv("OMP_NUM_THREADS", "1", 1);
  std::map<std::string, double> weights_of_stage;
  for (const char* stage : {"0", "1", "2", "3"}) {
    const std::vector<std::string> command =
        arguments(std::string("planned ") + stage, 2, joined(kWide, {"--zero_stage", stage, "--max_steps", "1"}));
    std::vector<std::string> plan{"plan"};
    plan.insert(plan.end(), command.begin(), command.end());
    const Ended planned = run_program(plan);
    ASSERT_EQ(planned.code, 0) << planned.output;
    const std::vector<std::string> total = line_of_plan(planned.output, "total");
    const std::vector<std::string> held = line_of_plan(planned.output, "weights");
    ASSERT_EQ(total.size(), 5u) << planned.output;
    ASSERT_EQ(held.size(), 5u) << planned.output;
    // The run allocates what it plans to the byte, or stops; its first line says what that is.
    const Ended ran = run_program(command);
    ASSERT_EQ(ran.code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(total[1] + " " + total[2] + " on "));
    std::string digits = held[3];
    std::erase(digits, ',');
    weights_of_stage[stage] = std::stod(digits);
  }
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(weights_of_stage["2"], weights_of_stage["0"]);
  EXPECT_NEAR(weights_of_stage["3"], weights_of_stage["0"] / 2, weights_of_stage["0"] * 0.05);
}

TEST_F(Job, AKilledRankOfDividedWeightsEndsTheJobAndTheSameCommandContinues) {
  const std::vector<std::string> more = joined(kWide, {"--zero_stage", "3", "--max_steps", "24"});
  run("whole", 2, more);
  const fs::path log = path("log");
  const std::vector<std::string> command = arguments("killed", 2, more);
  const pid_t job = start_until(command, log, "killed", 7);
  kill_rank(job, 2, 1, log);
  ASSERT_EQ(wait_for(start_program(command, log)), 0) << read_file(log);
  EXPECT_EQ(weights("killed"), weights("whole"));
}

TEST_F(Job, ReinforcementHasTheNumbersOfOneProcess) {
  run("model", 1);
  const auto reinforce = [&](const std::string& output, int processes, const std::vector<std::string>& more = {}) {
    const Ended ended = run_program(grpo_arguments(output, processes, more));
    ASSERT_EQ(ended.code, 0) << ended.output;
  };
  // A KL term needs log-probabilities of the reference; the quantile needs entropies of all processes.
  const std::vector<std::vector<std::string>> kinds{
      {},
      {"--beta", "0.04", "--scale_rewards", "batch", "--eval_strategy", "steps", "--eval_steps", "3",
       "--eval_dataset_name", path("data/held_out.jsonl").string()},
      {"--top_entropy_quantile", "0.5", "--num_iterations", "2"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string name = "grpo " + std::to_string(kind);
    reinforce(name + " one", 1, kinds[kind]);
    for (const int processes : {2, 4}) {
      const std::string output = name + " " + std::to_string(processes);
      reinforce(output, processes, kinds[kind]);
      for (const char* metric : {"loss", "grad_norm", "reward", "reward_std", "frac_reward_zero_std", "entropy",
                                 "completions/mean_length", "completions/clipped_ratio", "num_tokens", "epoch"})
        expect_near(output, name + " one", metric);
      for (const double difference : series(output, "sampling/sampling_logp_difference/max"))
        EXPECT_EQ(difference, 0.0);
    }
    // Both write the completions of all prompts.
    EXPECT_EQ(lines_of(path(name + " 2") / "completions/step-1.jsonl"), 16u);
  }
  expect_near("grpo 1 2", "grpo 1 one", "eval_reward");
  expect_near("grpo 1 2", "grpo 1 one", "kl");
  reinforce("again", 2);
  EXPECT_EQ(weights("again"), weights("grpo 0 2"));
  reinforce("divided", 2, {"--zero_stage", "1"});
  EXPECT_EQ(weights("divided"), weights("grpo 0 2"));
}

TEST_F(Job, AKilledRankOfReinforcementEndsTheJobAndTheSameCommandContinues) {
  run("model", 1);
  const std::vector<std::string> more{"--max_steps", "12", "--num_iterations", "2"};
  const fs::path log = path("log");
  ASSERT_EQ(wait_for(start_program(grpo_arguments("whole", 2, more), log)), 0) << read_file(log);
  const std::vector<std::string> command = grpo_arguments("killed", 2, more);
  const pid_t job = start_until(command, log, "killed", 5);
  kill_rank(job, 2, 1, log);
  ASSERT_EQ(wait_for(start_program(command, log)), 0) << read_file(log);
  EXPECT_EQ(weights("killed"), weights("whole"));
}

TEST_F(Job, OnlyRankZeroSpeaks) {
  const Ended ended = run_program(arguments("spoken", 3, {"--gradient_accumulation_steps", "1"}));
  ASSERT_EQ(ended.code, 0) << ended.output;
  std::size_t starts = 0;
  for (const std::string& line : split(ended.output, '\n'))
    starts += line.starts_with("hone: pretrain: a new model") ? 1 : 0;
  EXPECT_EQ(starts, 1u) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("in 3 processes"));
}

TEST_F(Job, AKilledRankEndsTheJobAndTheSameCommandContinues) {
  run("whole", 3, {"--gradient_accumulation_steps", "1"});
  const RandomStream random(11, "kill");
  for (int victim = 0; victim < 3; ++victim) {
    const std::vector<std::string> command = arguments("killed", 3, {"--gradient_accumulation_steps", "1"});
    fs::remove_all(path("killed"));
    const fs::path log = path("log " + std::to_string(victim));
    const std::size_t lines = 2 + random.below(static_cast<std::uint64_t>(victim), 10);
    kill_rank(start_until(command, log, "killed", lines), 3, victim, log);
    ASSERT_EQ(wait_for(start_program(command, log)), 0) << read_file(log);
    EXPECT_EQ(weights("killed"), weights("whole"));
    EXPECT_EQ(series("killed", "loss"), series("whole", "loss"));
  }
}

TEST_F(Job, AStoppedRankIsNamedAfterTheTimeout) {
  const fs::path log = path("log");
  const pid_t job =
      start_until(arguments("stopped", 2, {"--ddp_timeout", "5", "--max_steps", "100000"}), log, "stopped", 2);
  const std::vector<pid_t> ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), 2u) << read_file(log);
  ::kill(ranks[1], SIGSTOP);
  EXPECT_NE(wait_for(job), 0);
  EXPECT_THAT(read_file(log), HasSubstr("hone: error: rank 1 ("));
  EXPECT_THAT(read_file(log), HasSubstr("has not answered for 5 s (step "));
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0);
}

TEST_F(Job, AnInterruptedJobSavesAndContinues) {
  run("whole", 2);
  const fs::path log = path("log");
  const pid_t job = start_until(arguments("interrupted", 2, {"--save_strategy", "no"}), log, "interrupted", 5);
  ::kill(job, SIGINT);
  EXPECT_EQ(wait_for(job), 130) << read_file(log);
  EXPECT_THAT(read_file(log), HasSubstr("the same command continues from there"));
  run("interrupted", 2);
  EXPECT_EQ(weights("interrupted"), weights("whole"));
}

// Starts one rank as a launcher such as torchrun does.
pid_t start_rank(const std::vector<std::string>& command, int rank, int size, std::uint16_t port,
                 const std::string& key, const fs::path& log) {
  const std::vector<std::pair<const char*, std::string>> variables{{"RANK", std::to_string(rank)},
                                                                   {"WORLD_SIZE", std::to_string(size)},
                                                                   {"LOCAL_RANK", std::to_string(rank)},
                                                                   {"LOCAL_WORLD_SIZE", std::to_string(size)},
                                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                                   {"MASTER_PORT", std::to_string(port)},
                                                                   {"HONE_JOB_KEY", key}};
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
  const pid_t child = start_program(command, log);
  for (const auto& [name, value] : variables) ::unsetenv(name);
  return child;
}

TEST_F(Job, TorchrunsVariablesMakeTheSameJob) {
  run("own", 2);
  const std::uint16_t port = listen_on(0, true).port;
  const std::vector<std::string> command = arguments("torchrun", 2);
  const pid_t second = start_rank(command, 1, 2, port, "key", path("log"));
  const pid_t first = start_rank(command, 0, 2, port, "key", path("log"));
  EXPECT_EQ(wait_for(first), 0) << read_file(path("log"));
  EXPECT_EQ(wait_for(second), 0);
  EXPECT_EQ(weights("torchrun"), weights("own"));
}

TEST_F(Job, DifferingConfigurationsAreNamed) {
  const std::uint16_t port = listen_on(0, true).port;
  const pid_t first = start_rank(arguments("differs", 2), 0, 2, port, "key", path("log"));
  const pid_t second = start_rank(arguments("differs", 2, {"--learning_rate", "3e-3"}), 1, 2, port, "key", path("log"));
  EXPECT_NE(wait_for(first), 0);
  EXPECT_NE(wait_for(second), 0);
  EXPECT_THAT(read_file(path("log")),
              HasSubstr("has another configuration than rank 0: learning_rate was 0.002, is 0.003"));
}

TEST_F(Job, AWrongKeyIsRefused) {
  const std::uint16_t port = listen_on(0, true).port;
  const pid_t first = start_rank(arguments("refused", 2, {"--ddp_timeout", "5"}), 0, 2, port, "key", path("log 0"));
  const pid_t second = start_rank(arguments("refused", 2), 1, 2, port, "other", path("log 1"));
  EXPECT_EQ(wait_for(second), 1);
  EXPECT_EQ(wait_for(first), 1);
  EXPECT_THAT(read_file(path("log 1")), HasSubstr("it has another job key"));
  EXPECT_THAT(read_file(path("log 0")), HasSubstr("rank 1 of 2 did not join in time"));
}

TEST_F(Job, AnErrorOfAllRanksIsOneLine) {
  const Ended ended =
      run_program(arguments("none", 3, {"--gradient_accumulation_steps", "1", "--dataset_name", "/none.jsonl"}));
  EXPECT_EQ(ended.code, 1) << ended.output;
  std::size_t errors = 0;
  for (const std::string& line : split(ended.output, '\n')) errors += line.starts_with("hone: error") ? 1 : 0;
  EXPECT_EQ(errors, 1u) << ended.output;
}

TEST_F(Job, WhatIsMissingIsRefused) {
  const Ended grpo = run_program(grpo_arguments("grpo", 2, {"--zero_stage", "3"}));
  EXPECT_EQ(grpo.code, 1);
  EXPECT_THAT(grpo.output, HasSubstr("zero_stage: is 3; hone grpo divides the optimizer states only"));
  const Ended server =
      run_program(grpo_arguments("grpo", 2, {"--rollout", "server", "--vllm_server_url", "http://127.0.0.1:1"}));
  EXPECT_EQ(server.code, 1);
  EXPECT_THAT(server.output, HasSubstr("rollout: is server, which receives the weights of one process"));
  run("model", 1);
  const Ended adapter = run_program({"sft", "--model_name_or_path", path("model").string(), "--dataset_name",
                                     path("data/sft.jsonl").string(), "--num_processes", "2", "--zero_stage", "3",
                                     "--use_peft", "true", "--output_dir", path("adapter").string()});
  EXPECT_EQ(adapter.code, 1);
  EXPECT_THAT(adapter.output, HasSubstr("zero_stage: 3 divides trained weights, of which an adapter has few"));
}

TEST_F(Job, AFileOfAccelerateDividesWeights) {
  write_file(path("accelerate.yaml"), "num_processes: 2\ndeepspeed_config: {zero_stage: 3}\n");
  std::vector<std::string> command =
      arguments("zero", 1, joined(kWide, {"--config_file", path("accelerate.yaml").string()}));
  command.erase(std::ranges::find(command, "--num_processes"), std::ranges::find(command, "--num_processes") + 2);
  const Ended zero = run_program(command);
  EXPECT_EQ(zero.code, 0) << zero.output;
  run("stage", 2, joined(kWide, {"--zero_stage", "3", "--gradient_accumulation_steps", "4"}));
  EXPECT_EQ(weights("zero"), weights("stage"));
}

}  // namespace
}  // namespace hone::test
