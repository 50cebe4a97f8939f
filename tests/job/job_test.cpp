// Tests of training in several processes of this machine: the losses of one process, the same bits again, resuming with
// another number of processes, and ranks that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>

#include "cli/program.h"
#include "cli/server_program.h"
#include "core/files.h"
#include "core/random.h"
#include "core/strings.h"
#include "job/job_fixture.h"
#include "support/environment.h"
#include "support/free_port.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Job : public JobFixture {
 protected:
  // A pre-training of 8 sequences a step.
  [[nodiscard]] Flags arguments(const std::string& output, int processes, const Flags& more = {}) const {
    return pretraining(output, 24, 8, joined(batches(4 / processes, processes), more));
  }
  // GRPO on 4 prompts x 4 completions a step.
  [[nodiscard]] Flags grpo_arguments(const std::string& output, int processes, const Flags& more = {}) const {
    const Flags run = joined(batches(4 / processes, processes),
                             {"--per_device_train_batch_size", "4", "--max_completion_length", "24", "--max_steps", "6",
                              "--save_steps", "2", "--logging_steps", "1", "--learning_rate", "1e-3"});
    return reinforcement("model", output, joined(run, more));
  }
  void run(const std::string& output, int processes, const Flags& more = {}) const {
    finish(arguments(output, processes, more));
  }
};

TEST_F(Job, ProcessesHaveTheLossesOfOneWithMoreBatches) {
  run("one", 1);
  for (const int processes : {2, 4}) {
    const std::string output = std::to_string(processes);
    run(output, processes);
    expect_near(output, "one");
  }
}

TEST_F(Job, TheSameJobHasTheSameBits) {
  run("a", 2);
  run("b", 2, {"--gradient_checkpointing", "true"});
  expect_same_bits("b", "a");
}

TEST_F(Job, ARunContinuesWithAnotherNumberOfProcesses) {
  run("whole", 2);
  run("parts", 2, {"--max_steps", "8", "--lr_scheduler_type", "constant"});
  run("parts", 4, {"--max_steps", "16", "--lr_scheduler_type", "constant"});
  run("parts", 1, {"--lr_scheduler_type", "constant"});
  run("constant", 2, {"--lr_scheduler_type", "constant"});
  expect_near("parts", "constant", {"loss"});
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
    const Flags once{"--num_train_epochs", "2", "--learning_rate", "1e-3", "--lora_dropout", "0", "--use_peft", "true"};
    finish(fine_tuning("model", output, joined(batches(4 / processes, processes), once)));
  };
  tune("tuned one", 1);
  tune("tuned two", 2);
  expect_near("tuned two", "tuned one", {"loss", "grad_norm"});
}

TEST_F(Job, DividedStatesChangeNoBit) {
  const std::vector<Flags> kinds{{},
                                 {"--torch_dtype", "bfloat16"},
                                 {"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"},
                                 {"--torch_dtype", "bfloat16", "--optim", "adamw_8bit"},
                                 {"--optim", "muon"}};
  for (const Flags& kind : kinds) {
    const std::string name = kind.empty() ? "plain" : kind.back() + std::to_string(kind.size());
    run(name + " whole", 2, kind);
    run(name + " divided", 2, joined({"--zero_stage", "1"}, kind));
    expect_same_bits(name + " divided", name + " whole");
    // A checkpoint of divided states continues with whole ones, and the other way around, with other numbers of ranks.
    copy_checkpoint(name + " divided", name + " joined", 8);
    run(name + " joined", 2, joined({"--max_steps", "24"}, kind));
    EXPECT_EQ(weights(name + " joined"), weights(name + " whole")) << name;
    copy_checkpoint(name + " whole", name + " parted", 8);
    run(name + " parted", 2, joined({"--zero_stage", "1"}, kind));
    EXPECT_EQ(weights(name + " parted"), weights(name + " whole")) << name;
  }
  run("four whole", 4);
  run("four divided", 4, {"--zero_stage", "1"});
  EXPECT_EQ(weights("four divided"), weights("four whole"));
}

TEST_F(Job, DividedStatesContinueWithAnotherNumberOfProcesses) {
  const Flags constant{"--lr_scheduler_type", "constant", "--zero_stage", "1"};
  run("whole", 2, joined(constant, {"--max_steps", "24"}));
  run("parts", 4, joined(constant, {"--max_steps", "8"}));
  run("parts", 2, joined(constant, {"--max_steps", "16"}));
  run("parts", 1, joined(constant, {"--max_steps", "24"}));
  expect_near("parts", "whole", {"loss"});
}

// A model whose matrices are large enough to be divided among four ranks.
const Flags kWide{"--config_overrides", "hidden_size=256,intermediate_size=768,num_hidden_layers=2",
                  "--max_steps",        "4",
                  "--save_steps",       "2",
                  "--eval_steps",       "2"};

TEST_F(Job, DividedGradientsAndWeightsChangeNoBit) {
  const std::vector<Flags> kinds{
      {},
      {"--torch_dtype", "bfloat16"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_8bit", "--gradient_checkpointing", "true"},
      {"--optim", "sgd", "--optim_args", "momentum=0.9"},
      {"--optim", "muon"}};
  for (const Flags& kind : kinds) {
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
      copy_checkpoint(output, continued, 2);
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
  expect_near("parts", "four 1", {"loss"});
}

TEST_F(Job, DividedGradientsOfSeveralMicroBatchesAreThoseOfOneProcess) {
  // The second rank has fewer micro-batches in the last step of an epoch.
  const Flags more = joined(kWide, {"--max_steps", "24", "--learning_rate", "1e-3"});
  run("one", 1, more);
  run("two 2", 2, joined(more, {"--zero_stage", "2"}));
  run("two 3", 2, joined(more, {"--zero_stage", "3"}));
  EXPECT_EQ(weights("two 3"), weights("two 2"));
  expect_near("two 3", "one", {"loss", "eval_loss", "grad_norm"});
}

TEST_F(Job, ThePlanOfDividedWeightsIsThatOfTheRun) {
  const Environment one_thread(kOneThread);
  std::map<std::string, double> weights_of_stage;
  for (const std::string stage : {"0", "1", "2", "3"}) {
    weights_of_stage[stage] =
        finish_as_planned(arguments("planned " + stage, 2, joined(kWide, {"--zero_stage", stage, "--max_steps", "1"})));
  }
  EXPECT_EQ(weights_of_stage["2"], weights_of_stage["0"]);
  EXPECT_NEAR(weights_of_stage["3"], weights_of_stage["0"] / 2, weights_of_stage["0"] * 0.05);
}

TEST_F(Job, AKilledRankOfDividedWeightsEndsTheJobAndTheSameCommandContinues) {
  const Flags more = joined(kWide, {"--zero_stage", "3", "--max_steps", "24"});
  run("whole", 2, more);
  expect_continues_killed(arguments("killed", 2, more), 2, 1, 7);
}

TEST_F(Job, ReinforcementHasTheNumbersOfOneProcess) {
  run("model", 1);
  // A KL term needs log-probabilities of the reference; the quantile needs entropies of all processes.
  const std::vector<Flags> kinds{{},
                                 {"--beta", "0.04", "--scale_rewards", "batch", "--eval_strategy", "steps",
                                  "--eval_steps", "3", "--eval_dataset_name", path("data/held_out.jsonl").string()},
                                 {"--top_entropy_quantile", "0.5", "--num_iterations", "2"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string name = "grpo " + std::to_string(kind);
    finish(grpo_arguments(name + " one", 1, kinds[kind]));
    for (const int processes : {2, 4}) {
      const std::string output = name + " " + std::to_string(processes);
      finish(grpo_arguments(output, processes, kinds[kind]));
      expect_near(output, name + " one",
                  {"loss", "grad_norm", "reward", "reward_std", "frac_reward_zero_std", "entropy",
                   "completions/mean_length", "completions/clipped_ratio", "num_tokens", "epoch"});
      for (const double difference : series(output, "sampling/sampling_logp_difference/max"))
        EXPECT_EQ(difference, 0.0);
    }
    // Both write the completions of all prompts.
    EXPECT_EQ(lines_of(path(name + " 2") / "completions/step-1.jsonl"), 16u);
  }
  expect_near("grpo 1 2", "grpo 1 one", {"eval_reward", "kl"});
  finish(grpo_arguments("again", 2));
  EXPECT_EQ(weights("again"), weights("grpo 0 2"));
  finish(grpo_arguments("divided", 2, {"--zero_stage", "1"}));
  EXPECT_EQ(weights("divided"), weights("grpo 0 2"));
}

TEST_F(Job, ReinforcementMayTakeItsRolloutsFromServers) {
  run("model", 1);
  const Flags serve{"serve", path("model").string(), "--port", "0", "--device", "cpu", "--allow_weight_updates"};
  const ServerProgram first(serve);
  const ServerProgram second(serve);
  ASSERT_NE(first.port(), 0) << first.log();
  ASSERT_NE(second.port(), 0) << second.log();
  finish(grpo_arguments("own", 2));
  finish(grpo_arguments("served", 2, served_by({&first, &second})));
  expect_same_bits("served", "own");
  EXPECT_EQ(read_file(path("served") / "completions/step-6.jsonl"),
            read_file(path("own") / "completions/step-6.jsonl"));
  for (const double difference : series("served", "sampling/sampling_logp_difference/max")) EXPECT_EQ(difference, 0.0);
  // A generation ahead belongs to all ranks, and a checkpoint has it.
  const Flags ahead = joined(served_by({&first, &second}), {"--max_staleness", "1"});
  for (const int processes : {1, 2}) finish(grpo_arguments("ahead " + std::to_string(processes), processes, ahead));
  expect_near("ahead 2", "ahead 1",
              {"loss", "grad_norm", "reward", "num_tokens", "sampling/stale_tokens",
               "sampling/sampling_logp_difference/mean", "sampling/importance_sampling_ratio/mean"});
  EXPECT_THAT(series("ahead 2", "sampling/stale_tokens"), ::testing::Contains(1.0));
  const Flags longer = joined(ahead, {"--max_steps", "12"});
  finish(grpo_arguments("whole", 2, longer));
  expect_continues_killed(grpo_arguments("killed", 2, longer), 2, 1, 5);
}

// The first rank finds no server; the others wait for the weights to be sent.
TEST_F(Job, AServerThatIsLostEndsAllRanksInALine) {
  run("model", 1);
  const std::string said =
      refusal(grpo_arguments("lost", 2,
                             {"--rollout", "server", "--rollout_server", "hone", "--vllm_server_url",
                              "http://127.0.0.1:1", "--vllm_server_timeout", "0.1"}));
  EXPECT_THAT(said, HasSubstr("http://127.0.0.1:1/update_weights: gives no answer: "));
  EXPECT_EQ(lines_with("hone: error", said), 1u) << said;
}

TEST_F(Job, AKilledRankOfReinforcementEndsTheJobAndTheSameCommandContinues) {
  run("model", 1);
  const Flags more{"--max_steps", "12", "--num_iterations", "2"};
  finish(grpo_arguments("whole", 2, more));
  expect_continues_killed(grpo_arguments("killed", 2, more), 2, 1, 5);
}

TEST_F(Job, OnlyRankZeroSpeaks) {
  const Ended ended = run_program(arguments("spoken", 3, {"--gradient_accumulation_steps", "1"}));
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(lines_with("hone: pretrain: a new model", ended.output), 1u) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("in 3 processes"));
}

TEST_F(Job, AKilledRankEndsTheJobAndTheSameCommandContinues) {
  run("whole", 3, {"--gradient_accumulation_steps", "1"});
  const RandomStream random(11, "kill");
  for (int victim = 0; victim < 3; ++victim) {
    fs::remove_all(path("killed"));
    const std::size_t lines = 2 + random.below(static_cast<std::uint64_t>(victim), 10);
    expect_continues_killed(arguments("killed", 3, {"--gradient_accumulation_steps", "1"}), 3, victim, lines);
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
pid_t start_rank(const Flags& command, int rank, int size, std::uint16_t port, const std::string& key,
                 const fs::path& log) {
  const Environment variables({{"RANK", std::to_string(rank)},
                               {"WORLD_SIZE", std::to_string(size)},
                               {"LOCAL_RANK", std::to_string(rank)},
                               {"LOCAL_WORLD_SIZE", std::to_string(size)},
                               {"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", std::to_string(port)},
                               {"HONE_JOB_KEY", key}});
  return start_program(command, log);
}

TEST_F(Job, TorchrunsVariablesMakeTheSameJob) {
  run("own", 2);
  const std::uint16_t port = free_port();
  const Flags command = arguments("torchrun", 2);
  const pid_t second = start_rank(command, 1, 2, port, "key", path("log"));
  const pid_t first = start_rank(command, 0, 2, port, "key", path("log"));
  EXPECT_EQ(wait_for(first), 0) << read_file(path("log"));
  EXPECT_EQ(wait_for(second), 0);
  EXPECT_EQ(weights("torchrun"), weights("own"));
}

TEST_F(Job, DifferingConfigurationsAreNamed) {
  const std::uint16_t port = free_port();
  const pid_t first = start_rank(arguments("differs", 2), 0, 2, port, "key", path("log"));
  const pid_t second = start_rank(arguments("differs", 2, {"--learning_rate", "3e-3"}), 1, 2, port, "key", path("log"));
  EXPECT_NE(wait_for(first), 0);
  EXPECT_NE(wait_for(second), 0);
  EXPECT_THAT(read_file(path("log")),
              HasSubstr("has another configuration than rank 0: learning_rate was 0.002, is 0.003"));
}

TEST_F(Job, AWrongKeyIsRefused) {
  const std::uint16_t port = free_port();
  const pid_t first = start_rank(arguments("refused", 2, {"--ddp_timeout", "5"}), 0, 2, port, "key", path("log 0"));
  const pid_t second = start_rank(arguments("refused", 2), 1, 2, port, "other", path("log 1"));
  EXPECT_EQ(wait_for(second), 1);
  EXPECT_EQ(wait_for(first), 1);
  EXPECT_THAT(read_file(path("log 1")), HasSubstr("it has another job key"));
  EXPECT_THAT(read_file(path("log 0")), HasSubstr("rank 1 of 2 did not join in time"));
}

TEST_F(Job, AnErrorOfAllRanksIsOneLine) {
  const std::string said =
      refusal(arguments("none", 3, {"--gradient_accumulation_steps", "1", "--dataset_name", "/none.jsonl"}));
  EXPECT_EQ(lines_with("hone: error", said), 1u) << said;
}

TEST_F(Job, WhatIsMissingIsRefused) {
  EXPECT_THAT(refusal(grpo_arguments("grpo", 2, {"--zero_stage", "3"})),
              HasSubstr("zero_stage: is 3; hone grpo divides the optimizer states only"));
  run("model", 1);
  EXPECT_THAT(
      refusal(fine_tuning("model", "adapter", {"--num_processes", "2", "--zero_stage", "3", "--use_peft", "true"})),
      HasSubstr("zero_stage: 3 divides trained weights, of which an adapter has few"));
}

// A file of DeepSpeed, of FSDP and of Megatron-LM, with the bits of the keys that have the same effect.
TEST_F(Job, AFileOfAccelerateDividesAsKeysDo) {
  const std::vector<std::pair<std::string, Flags>> files{
      {"num_processes: 2\ndeepspeed_config: {zero_stage: 3}\n", {"--zero_stage", "3"}},
      {"num_processes: 2\ndistributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}\n",
       {"--zero_stage", "2"}},
      {"num_processes: 2\ndistributed_type: MEGATRON_LM\nmegatron_lm_config: {megatron_lm_pp_degree: 2, "
       "megatron_lm_num_micro_batches: 4}\n",
       {"--pipeline_parallel_size", "2"}}};
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& [text, keys] = files[i];
    write_file(path("accelerate.yaml"), text);
    const std::string output = text_of("file", i);
    Flags command = arguments(output, 1, joined(kWide, {"--config_file", path("accelerate.yaml").string()}));
    command.erase(std::ranges::find(command, "--num_processes"), std::ranges::find(command, "--num_processes") + 2);
    const Ended ended = run_program(command);
    EXPECT_EQ(ended.code, 0) << ended.output;
    run(text_of("keys", i), 2, joined(joined(kWide, keys), {"--gradient_accumulation_steps", "4"}));
    EXPECT_EQ(weights(output), weights(text_of("keys", i))) << text;
  }
}

}  // namespace
}  // namespace hone::test
