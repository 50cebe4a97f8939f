// Tests of GRPO in tensor groups: losses, rewards and completions next to those of one process, on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "cli/program.h"
#include "cli/server_program.h"
#include "core/files.h"
#include "job/job_fixture.h"
#include "job/mixtures.h"
#include "support/environment.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Metrics that do not depend on the layout.
const Flags kReinforced{"loss",
                        "grad_norm",
                        "reward",
                        "reward_std",
                        "frac_reward_zero_std",
                        "entropy",
                        "completions/mean_length",
                        "completions/clipped_ratio",
                        "num_tokens",
                        "epoch"};

class TensorGrpo : public JobFixture {
 protected:
  TensorGrpo() {
    const Configs families{{"llama", SmallModel{.type = "llama"}.config()},
                           {"llama odd", SmallModel{.type = "llama", .vocabulary = 309}.config()},
                           {"qwen2", SmallModel{.type = "qwen2"}.config()},
                           {"qwen3", SmallModel{.type = "qwen3", .tied = true}.config()},
                           {"gpt2", SmallModel{.type = "gpt2"}.config()}};
    for (const auto& [name, config] : families) write_file(path(name + ".json"), config);
    for (const auto& [name, config] : mixtures()) write_file(path(name + ".json"), config);
  }

  // Makes a model that has learned a little.
  void make_model(const std::string& family) const {
    finish(
        pretraining(family, 12, 12, joined(batches(4, 1), {"--model_config_path", path(family + ".json").string()})));
  }
  // GRPO on 4 prompts x 4 completions a step. data: tensor groups, each of `size` processes.
  [[nodiscard]] Flags arguments(const std::string& model, const std::string& output, int data, int size,
                                const Flags& more = {}) const {
    const Flags run = joined(
        batches(4 / data, data * size),
        {"--per_device_train_batch_size", "4", "--max_completion_length", "24", "--max_steps", "6", "--save_steps", "2",
         "--logging_steps", "1", "--learning_rate", "1e-3", "--tensor_parallel_size", std::to_string(size)});
    return reinforcement(model, output, joined(run, more));
  }
  void run(const std::string& model, const std::string& output, int data, int size, const Flags& more = {}) const {
    finish(arguments(model, output, data, size, more));
  }
  [[nodiscard]] std::string completions(const std::string& output, int step) const {
    return read_file(path(output) / ("completions/step-" + std::to_string(step) + ".jsonl"));
  }
  void expect_exact(const std::string& output, std::size_t steps) const {
    const std::vector<double> differences = series(output, "sampling/sampling_logp_difference/max");
    EXPECT_EQ(differences, std::vector<double>(steps, 0.0)) << output;
  }
};

TEST_F(TensorGrpo, AGroupHasTheNumbersOfOneProcess) {
  for (const char* family : {"llama", "llama odd", "qwen2", "gpt2"}) {
    const std::string name = family;
    make_model(name);
    run(name, name + " one", 1, 1);
    for (const auto& [data, size] : {std::pair{1, 2}, {1, 4}, {2, 2}}) {
      const std::string output = name + " " + std::to_string(data) + " x " + std::to_string(size);
      run(name, output, data, size);
      expect_near(output, name + " one", kReinforced);
      expect_exact(output, 6);
      EXPECT_EQ(completions(output, 1), completions(name + " one", 1)) << output;
      EXPECT_EQ(completions(output, 6), completions(name + " one", 6)) << output;
      expect_near_weights(output, name + " one", 1e-3);
    }
  }
}

TEST_F(TensorGrpo, MixturesHaveTheNumbersOfOneProcess) {
  for (const char* family : {"mixtral", "deepseek_v3"}) {
    const std::string name = family;
    make_model(name);
    run(name, name + " one", 1, 1);
    for (const auto& [data, size] : {std::pair{1, 2}, {1, 4}, {2, 2}}) {
      const std::string output = text_of(name, " ", data, " x ", size);
      run(name, output, data, size);
      expect_near(output, name + " one", kReinforced);
      expect_exact(output, 6);
      EXPECT_EQ(completions(output, 6), completions(name + " one", 6)) << output;
    }
  }
}

TEST_F(TensorGrpo, AnAdapterHasTheNumbersOfOneProcess) {
  const Flags kinds[] = {
      {"--use_peft", "true", "--lora_r", "4", "--lora_target_modules", "all-linear", "--beta", "0.04"},
      {"--use_peft", "true", "--lora_r", "4", "--lora_target_modules", "q_proj,v_proj,lm_head", "--lora_bias", "all",
       "--eval_strategy", "steps", "--eval_steps", "3", "--eval_dataset_name", path("data/held_out.jsonl").string()}};
  make_model("qwen2");
  for (std::size_t kind = 0; kind < std::size(kinds); ++kind) {
    const std::string one = text_of(kind, " one");
    run("qwen2", one, 1, 1, kinds[kind]);
    EXPECT_THAT(series(one, "grad_norm"), ::testing::Each(::testing::Gt(0.0)));
    if (kind == 0) {
      EXPECT_THAT(series(one, "kl"), ::testing::Contains(::testing::Gt(1e-6)));
    }
    for (const auto& [data, size] : {std::pair{1, 2}, {1, 4}, {2, 2}}) {
      const std::string output = text_of(kind, ": ", data, " x ", size);
      run("qwen2", output, data, size, kinds[kind]);
      expect_near(output, one, kReinforced);
      if (kind == 0) expect_near(output, one, {"kl"});
      if (kind == 1) expect_near(output, one, {"eval_reward"});
      expect_exact(output, 6);
      EXPECT_EQ(completions(output, 1), completions(one, 1)) << output;
      EXPECT_EQ(completions(output, 6), completions(one, 6)) << output;
      expect_near_weights(output, one, 1e-3);
    }
  }
}

TEST_F(TensorGrpo, AnAdapterIsExactInBfloat16AndContinuesBitForBit) {
  for (const auto& [family, targets] : {std::pair{"llama", "all-linear"},
                                        {"gpt2", "all-linear"},
                                        {"mixtral", "q_proj,v_proj,o_proj"},
                                        {"deepseek_v3", "q_b_proj,kv_b_proj,o_proj"}}) {
    const std::string name = family;
    make_model(name);
    const Flags more{"--use_peft", "true", "--lora_target_modules", targets, "--torch_dtype", "bfloat16"};
    for (const auto& [data, size] : {std::pair{1, 2}, {2, 2}}) {
      const std::string output = text_of(name, " ", data, " x ", size);
      run(name, output, data, size, more);
      expect_exact(output, 6);
      copy_checkpoint(output, output + " parts", 4);
      run(name, output + " parts", data, size, more);
      const auto adapter = [&](const std::string& of) { return read_file(path(of) / "adapter_model.safetensors"); };
      EXPECT_EQ(adapter(output + " parts"), adapter(output)) << output;
    }
  }
}

TEST_F(TensorGrpo, ReferencesEvaluationsAndQuantilesAreThoseOfOneProcess) {
  make_model("qwen3");
  const std::vector<Flags> kinds{
      {"--beta", "0.04", "--scale_rewards", "batch", "--eval_strategy", "steps", "--eval_steps", "3",
       "--eval_dataset_name", path("data/held_out.jsonl").string(), "--sync_ref_model", "true",
       "--ref_model_sync_steps", "2"},
      {"--top_entropy_quantile", "0.5", "--num_iterations", "2", "--loss_type", "dapo"},
      {"--top_p", "0.9", "--top_k", "40", "--temperature", "0.8", "--repetition_penalty", "1.1"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string name = std::to_string(kind);
    run("qwen3", name + " one", 1, 1, kinds[kind]);
    for (const int data : {1, 2}) {
      const std::string output = name + " " + std::to_string(data);
      run("qwen3", output, data, 2, kinds[kind]);
      expect_near(output, name + " one", kReinforced);
      expect_exact(output, kind == 1 ? 3 : 6);  // steps whose generation no update has passed
      EXPECT_EQ(completions(output, 1), completions(name + " one", 1));
      if (kind == 0) expect_near(output, name + " one", {"eval_reward", "eval_loss", "kl"});
    }
  }
}

TEST_F(TensorGrpo, LogProbabilitiesAreExactInBfloat16) {
  const Flags bf16{"--torch_dtype", "bfloat16"};
  for (const char* family : {"llama", "llama odd", "gpt2"}) {
    const std::string name = family;
    make_model(name);
    for (const auto& [data, size] : {std::pair{1, 2}, {1, 4}, {2, 2}}) {
      const std::string output = name + " " + std::to_string(data) + " x " + std::to_string(size);
      run(name, output, data, size, bf16);
      expect_exact(output, 6);
    }
  }
}

TEST_F(TensorGrpo, TheSameJobHasTheSameBits) {
  make_model("llama");
  const Flags kinds[] = {{}, {"--torch_dtype", "bfloat16"}, {"--optim", "adamw_8bit"}};
  for (const Flags& kind : kinds) {
    run("llama", "a", 2, 2, joined(kind, {"--overwrite_output_dir", "true"}));
    run("llama", "b", 2, 2, joined(kind, {"--overwrite_output_dir", "true", "--gradient_checkpointing", "true"}));
    run("llama", "c", 2, 2, joined(kind, {"--overwrite_output_dir", "true", "--zero_stage", "1"}));
    for (const char* output : {"b", "c"}) {
      expect_same_bits(output, "a");
      EXPECT_EQ(completions(output, 6), completions("a", 6));
    }
  }
}

TEST_F(TensorGrpo, ARunContinuesBitForBitAndOnAnotherLayout) {
  make_model("gpt2");
  // The reference moves, and a checkpoint is within a generation.
  const Flags more{"--num_iterations", "2",    "--save_steps",           "1", "--beta", "0.04",
                   "--sync_ref_model", "true", "--ref_model_sync_steps", "2"};
  run("gpt2", "one", 1, 1, more);
  for (const int data : {1, 2}) {
    const std::string name = std::to_string(data);
    run("gpt2", name + " whole", data, 2, more);
    copy_checkpoint(name + " whole", name + " parts", 3);
    run("gpt2", name + " parts", data, 2, more);
    EXPECT_EQ(weights(name + " parts"), weights(name + " whole"));
  }
  const auto expect_continues = [&](const std::string& from, const std::string& to, int data, int size) {
    copy_checkpoint(from, to, 3);
    run("gpt2", to, data, size, more);
    EXPECT_EQ(completions(to, 5), completions("one", 5)) << to;
    expect_near_weights(to, "one", 1e-3);
  };
  expect_continues("1 whole", "on one", 1, 1);
  expect_continues("1 whole", "on four", 1, 4);
  expect_continues("2 whole", "of two groups on one", 1, 1);
  expect_continues("one", "from one on two groups", 2, 2);
}

TEST_F(TensorGrpo, AGenerationIsBegunAheadInOneGroup) {
  make_model("llama");
  const Flags ahead{"--max_staleness", "1", "--max_steps", "8"};
  run("llama", "one", 1, 1, ahead);
  run("llama", "two", 1, 2, ahead);
  expect_near("two", "one", {"loss", "grad_norm", "reward", "num_tokens", "sampling/stale_tokens"});
  EXPECT_THAT(series("two", "sampling/stale_tokens"), ::testing::Contains(::testing::Gt(0.0)));
  copy_checkpoint("two", "parts", 4);
  run("llama", "parts", 1, 2, ahead);
  EXPECT_EQ(weights("parts"), weights("two"));
  EXPECT_THAT(refusal(arguments("llama", "none", 2, 2, ahead)),
              HasSubstr("max_staleness: is 1; an engine begins generations ahead in one process or tensor group only"));
}

TEST_F(TensorGrpo, ServersGetWholeWeights) {
  make_model("llama");
  const ServerProgram server(
      {"serve", path("llama").string(), "--port", "0", "--device", "cpu", "--allow_weight_updates"});
  ASSERT_NE(server.port(), 0) << server.log();
  run("llama", "one", 1, 1, served_by({&server}));
  for (const int data : {1, 2}) {
    const std::string output = std::to_string(data);
    run("llama", output, data, 2, served_by({&server}));
    expect_near(output, "one", kReinforced);
    EXPECT_EQ(completions(output, 6), completions("one", 6));
  }
  // Adapters are merged into them.
  const Flags adapter = joined(served_by({&server}), {"--use_peft", "true", "--lora_target_modules", "all-linear"});
  run("llama", "adapter", 1, 1, adapter);
  run("llama", "divided adapter", 1, 2, adapter);
  expect_near("divided adapter", "adapter", kReinforced);
  EXPECT_EQ(completions("divided adapter", 6), completions("adapter", 6));
}

TEST_F(TensorGrpo, ThePlanIsThatOfTheRun) {
  make_model("llama");
  const Environment one_thread(kOneThread);
  const double one = finish_as_planned(arguments("llama", "1", 1, 1, {"--max_steps", "1"}));
  const double half = finish_as_planned(arguments("llama", "2", 1, 2, {"--max_steps", "1"}));
  EXPECT_NEAR(half, one / 2, one * 0.02);
}

TEST_F(TensorGrpo, AKilledRankEndsTheJobAndTheSameCommandContinues) {
  make_model("llama");
  const Flags more{"--max_steps", "12", "--num_iterations", "2"};
  run("llama", "whole", 2, 2, more);
  for (const int victim : {0, 1, 3}) {
    fs::remove_all(path("killed"));
    expect_continues_killed(arguments("llama", "killed", 2, 2, more), 4, victim, 5);
  }
}

// The rank that orders what the others run: they wait for its orders no longer than for other answers.
TEST_F(TensorGrpo, AStoppedFirstRankIsNamedAfterTheTimeout) {
  make_model("llama");
  const fs::path log = path("log");
  const pid_t job = start_until(arguments("llama", "stopped", 1, 2, {"--ddp_timeout", "5", "--max_steps", "100000"}),
                                log, "stopped", 2);
  const std::vector<pid_t> ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), 2u) << read_file(log);
  ::kill(ranks[0], SIGSTOP);
  EXPECT_NE(wait_for(job), 0);
  EXPECT_THAT(read_file(log), HasSubstr("hone: error: rank 0 ("));
  EXPECT_THAT(read_file(log), HasSubstr("has not answered for 5 s (step "));
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0);
}

// Other ranks are in the middle of a rollout when one fails that judges.
TEST_F(TensorGrpo, AFailingRewardSavesOnAllRanksAndTheSameCommandContinues) {
  make_model("llama");
  const fs::path fails = path("fails");
  write_file(path("reward.sh"), "#!/bin/sh\n[ -e '" + fails.string() + "' ] && exit 3\nsed s/.*/0.5/\n");
  fs::permissions(path("reward.sh"), fs::perms::owner_all);
  const Flags more{
      "--max_steps", "12", "--save_strategy", "no", "--reward_funcs", "tag_count,length," + path("reward.sh").string()};
  for (const auto& [data, size] : {std::pair{1, 2}, {2, 2}, {2, 1}}) {
    const std::string name = std::to_string(data) + " x " + std::to_string(size);
    const Flags zero = size == 1 ? Flags{"--zero_stage", "1"} : Flags{};
    run("llama", name + " whole", data, size, joined(more, zero));
    const Flags command = arguments("llama", name, data, size, joined(more, zero));
    const fs::path log = path("log " + name);
    const pid_t job = start_until(command, log, name, 3);
    write_file(fails, "");
    EXPECT_EQ(wait_for(job), 1);
    fs::remove(fails);
    const std::string said = read_file(log);
    EXPECT_EQ(lines_with("hone: error", said), 1u) << said;
    EXPECT_THAT(said, HasSubstr("reward.sh: it exited with status 3")) << said;
    EXPECT_THAT(said, HasSubstr("the same command continues from there")) << said;
    EXPECT_THAT(said, ::testing::Not(HasSubstr("defect"))) << said;
    finish(command);
    EXPECT_EQ(weights(name), weights(name + " whole")) << name;
  }
}

TEST_F(TensorGrpo, AnInterruptedJobSavesAndContinues) {
  make_model("llama");
  const Flags more{"--max_steps", "40"};
  run("llama", "whole", 2, 2, more);
  const fs::path log = path("log");
  const pid_t job = start_until(arguments("llama", "interrupted", 2, 2, joined(more, {"--save_strategy", "no"})), log,
                                "interrupted", 5);
  ::kill(job, SIGINT);
  EXPECT_EQ(wait_for(job), 130) << read_file(log);
  EXPECT_THAT(read_file(log), HasSubstr("the same command continues from there"));
  run("llama", "interrupted", 2, 2, more);
  EXPECT_EQ(weights("interrupted"), weights("whole"));
}

TEST_F(TensorGrpo, WhatIsMissingIsRefused) {
  make_model("llama");
  const auto refused = [&](int data, int size, const Flags& more) {
    return refusal(arguments("llama", "none", data, size, more));
  };
  EXPECT_THAT(refused(1, 2, {"--num_processes", "3"}),
              HasSubstr("tensor_parallel_size: is 2, which does not divide num_processes 3"));
  EXPECT_THAT(refused(1, 3, {}), HasSubstr("tensor_parallel_size: is 3, but num_attention_heads is 4"));
  EXPECT_THAT(refused(2, 2, {"--zero_stage", "2"}),
              HasSubstr("zero_stage: is 2; hone grpo divides the optimizer states only"));
  EXPECT_THAT(refused(1, 2, {"--virtual_pipeline_parallel_size", "2"}),
              HasSubstr("virtual_pipeline_parallel_size: divides the stages of a pipeline; hone grpo has none"));
  EXPECT_THAT(refused(2, 2, {"--context_parallel_size", "2"}),
              HasSubstr("context_parallel_size: is 2; hone grpo computes whole sequences"));
  const std::string missing =
      refused(1, 2, {"--reward_funcs", "accuracy", "--dataset_name", path("none.jsonl").string()});
  EXPECT_THAT(missing, HasSubstr("none.jsonl"));
  EXPECT_EQ(lines_with("hone: error", missing), 1u) << missing;
}

}  // namespace
}  // namespace hone::test
