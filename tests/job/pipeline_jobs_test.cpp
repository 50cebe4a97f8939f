// Tests of runs of pipelines whose stages are divided again, next to those of one process, on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "core/files.h"
#include "core/strings.h"
#include "job/job_fixture.h"
#include "job/pipeline_products.h"
#include "support/models.h"

namespace hone::test::products {
namespace {

using ::testing::HasSubstr;

// Runs of whole processes. `size` is the number of stages; `more` gives the other groups and num_processes.
class ProductJob : public DividedJob {
 protected:
  explicit ProductJob(Flags pretraining = {})
      : DividedJob({.size_flag = "--pipeline_parallel_size",
                    .max_steps = 8,
                    .eval_steps = 4,
                    .pretraining = std::move(pretraining)},
                   all_configs()) {}

  static Configs all_configs() {
    Configs all = families();
    all.merge(mixtures());
    return all;
  }

  // Expects about the FLOPs a token of another run. Ranks of a tensor group compute norms and sums each.
  void expect_near_work(const std::string& output, const std::string& one) const {
    const auto work = [&](const std::string& name) {
      return series(name, "gflops_per_second").at(0) / series(name, "tokens_per_second").at(0);
    };
    EXPECT_NEAR(work(output), work(one), 0.15 * work(one)) << output;
  }

  // Flags of groups of one more kind, in a job of some processes.
  static Flags groups(const char* flag, int size, int processes, const Flags& more = {}) {
    return joined({flag, std::to_string(size), "--num_processes", std::to_string(processes)}, more);
  }

  // Expects that a run's bits are those of another with and without recomputation, and that it continues bit for bit
  // and on other layouts.
  void expect_repeats(const std::string& family, int data, int stages, const Flags& more) const {
    run(family, "a", data, stages, more);
    run(family, "b", data, stages, joined(more, {"--gradient_checkpointing", "true"}));
    run(family, "c", data, stages, joined(more, {"--gradient_checkpointing", "false"}));
    for (const char* other : {"b", "c"}) {
      expect_same_bits(other, "a");
      EXPECT_EQ(series(other, "grad_norm"), series("a", "grad_norm"));
    }
    expect_resumes(family, "resumed", data, stages, more);
    EXPECT_EQ(weights("resumed whole"), weights("a"));
  }
};

class PipelineTensorJob : public ProductJob {
 protected:
  static Flags tensor(int size, int processes, const Flags& more = {}) {
    return groups("--tensor_parallel_size", size, processes, more);
  }
};

TEST_F(PipelineTensorJob, PretrainingAndFineTuningHaveTheLossesOfOneProcess) {
  for (const auto& [family, config] : families()) {
    run(family, family + " one", 1, 1);
    tune(family + " one", family + " tuned", 1, 1);
    const std::string output = family + " 2 x 2";
    run(family, output, 1, 2, tensor(2, 4));
    expect_near(output, family + " one");
    // Each rank computes all of a head that the ranks do not divide.
    if (family != "llama odd") expect_near_work(output, family + " one");
    tune(family + " one", output + " tuned", 1, 2, tensor(2, 4));
    expect_near(output + " tuned", family + " tuned", kTuned);
    expect_near_weights(output + " tuned", family + " tuned");
  }
  run("qwen2", "2 x 2 x 2", 2, 2, tensor(2, 8, {"--zero_stage", "1"}));
  expect_near("2 x 2 x 2", "qwen2 one");
}

// AdamW scales up the rounding of small gradients; SGD does not.
TEST_F(PipelineTensorJob, ClippedUpdatesAreThoseOfOneProcess) {
  const Flags clipped{"--max_grad_norm", "0.05", "--optim", "sgd", "--learning_rate", "1"};
  for (const auto& [family, config] : families()) {
    run(family, family + " one", 1, 1, clipped);
    run(family, family + " 2 x 2", 1, 2, tensor(2, 4, clipped));
    expect_near(family + " 2 x 2", family + " one");
    expect_near_weights(family + " 2 x 2", family + " one", 1e-5);
  }
}

TEST_F(PipelineTensorJob, ARunRepeatsAndContinuesBitForBit) {
  expect_repeats("qwen2", 1, 2, tensor(2, 4));
  expect_resumes("gpt2", "divided", 2, 2, tensor(2, 8, {"--zero_stage", "1"}));
  expect_resumes("gpt2", "bf16", 1, 2,
                 tensor(2, 4, {"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"}));
}

TEST_F(PipelineTensorJob, ARunContinuesOnAnotherLayout) {
  run("qwen2", "one", 1, 1);
  const auto continued = [&](const std::string& from, const std::string& to, int data, int stages, const Flags& more) {
    resume("qwen2", from, 4, to, data, stages, more);
    expect_near_end(to, "one", 4);
  };
  continued("one", "a", 1, 2, tensor(2, 4));
  run("qwen2", "2 x 2", 1, 2, tensor(2, 4));
  continued("2 x 2", "b", 1, 1, {});
  continued("2 x 2", "c", 2, 2, tensor(2, 8, {"--zero_stage", "1"}));
  continued("2 x 2", "d", 1, 1, tensor(4, 4));
  continued("2 x 2", "e", 1, 4, {});
}

// Each process allocates what it plans to the byte, or stops.
TEST_F(PipelineTensorJob, ThePlanHasEachStage) {
  const Environment one_thread(kOneThread);
  const Flags command = arguments("llama", "planned", 1, 2, tensor(2, 4, {"--max_steps", "1"}));
  const std::string plan = plan_of(command);
  std::vector<double> each;
  for (const Words& line : planned_lines(plan, "stage ")) each.push_back(planned_bytes(line));
  ASSERT_EQ(each.size(), 2u) << plan;
  const std::vector<Words> total = planned_lines(plan, "total");
  ASSERT_EQ(total.size(), 1u) << plan;
  EXPECT_THAT(each, ::testing::Contains(planned_bytes(total[0])));
  const std::string alone = plan_of(arguments("llama", "planned", 1, 2, {"--max_steps", "1"}));
  EXPECT_LT(planned_bytes(planned_lines(plan, "weights").at(0)),
            0.55 * planned_bytes(planned_lines(alone, "weights").at(0)));
  finish(command);
}

TEST_F(PipelineTensorJob, WhatIsMissingIsRefused) {
  const auto with = [&](int stages, const Flags& more) { return refusal(arguments("llama", "none", 1, stages, more)); };
  EXPECT_THAT(with(2, tensor(2, 6)),
              HasSubstr("pipeline_parallel_size: is 2 with tensor_parallel_size 2, which does not divide "
                        "num_processes 6"));
  EXPECT_THAT(with(2, tensor(3, 6)), HasSubstr("tensor_parallel_size: is 3, but num_attention_heads is 4"));
  EXPECT_THAT(with(2, tensor(2, 4, {"--optim", "muon"})),
              HasSubstr("tensor_parallel_size: is 2, but optim muon updates whole matrices"));
  EXPECT_THAT(with(8, tensor(2, 16)), HasSubstr("pipeline_parallel_size: is 8, but the model has 4 layers"));
}

class PipelineContextJob : public ProductJob {
 protected:
  PipelineContextJob() : ProductJob({"--block_size", "200"}) {}
  static Flags context(int size, int processes, const Flags& more = {}) {
    return groups("--context_parallel_size", size, processes, more);
  }
};

TEST_F(PipelineContextJob, PretrainingAndFineTuningHaveTheLossesOfOneProcess) {
  for (const auto& [family, config] : families()) {
    run(family, family + " one", 1, 1);
    const std::string output = family + " 2 x 2";
    run(family, output, 1, 2, context(2, 4));
    expect_near(output, family + " one");
    expect_near_work(output, family + " one");
    expect_near_weights(output, family + " one");
  }
  tune("gpt2 one", "tuned", 1, 1);
  tune("gpt2 one", "2 x 2 tuned", 1, 2, context(2, 4));
  expect_near("2 x 2 tuned", "tuned", kTuned);
  expect_near_weights("2 x 2 tuned", "tuned");
  run("qwen2", "2 x 2 x 2", 2, 2, context(2, 8, {"--zero_stage", "1"}));
  expect_near("2 x 2 x 2", "qwen2 one");
  run("qwen2", "with tensor", 1, 2, context(2, 8, {"--tensor_parallel_size", "2"}));
  expect_near("with tensor", "qwen2 one");
}

TEST_F(PipelineContextJob, ARunRepeatsAndContinuesBitForBit) { expect_repeats("qwen2", 1, 2, context(2, 4)); }

TEST_F(PipelineContextJob, ARunContinuesOnAnotherLayout) {
  run("llama", "one", 1, 1);
  run("llama", "2 x 2", 1, 2, context(2, 4));
  const auto continued = [&](const std::string& from, const std::string& to, int data, int stages, const Flags& more) {
    resume("llama", from, 4, to, data, stages, more);
    expect_near_end(to, "one", 4);
  };
  continued("one", "a", 1, 2, context(2, 4));
  continued("2 x 2", "b", 1, 1, {});
  continued("2 x 2", "c", 2, 2, context(2, 8, {"--zero_stage", "1"}));
  continued("2 x 2", "d", 1, 1, context(4, 4));
}

TEST_F(PipelineContextJob, ThePlanIsThatOfTheRun) {
  const Environment one_thread(kOneThread);
  const Flags command = arguments("llama", "planned", 1, 2, context(2, 4, {"--max_steps", "1"}));
  EXPECT_EQ(planned_lines(plan_of(command), "stage ").size(), 2u);
  finish(command);
  EXPECT_THAT(refusal(arguments("llama", "none", 1, 2, context(2, 6))),
              HasSubstr("context_parallel_size: is 2 with pipeline_parallel_size 2, which does not divide "
                        "num_processes 6"));
}

class PipelineAdapterJob : public ProductJob {
 protected:
  static Flags adapter(const Flags& more = {}) {
    return joined(
        {"--use_peft", "true", "--lora_r", "4", "--lora_dropout", "0", "--learning_rate", "1e-3", "--save_steps", "2"},
        more);
  }
  // Expects the tensors of two adapters up to a relative difference.
  void expect_near_adapters(const std::string& output, const std::string& one) const {
    const SafetensorsFile own(path(output) / "adapter_model.safetensors");
    const SafetensorsFile expected(path(one) / "adapter_model.safetensors");
    ASSERT_EQ(own.tensors().size(), expected.tensors().size());
    for (const StoredTensor& tensor : expected.tensors()) {
      const std::vector<float> values = read_values<float>(own.at(tensor.name));
      EXPECT_LT(relative_difference(values, read_values<float>(tensor)), 1e-4) << output << ", " << tensor.name;
    }
  }
  [[nodiscard]] std::string adapter_bytes(const std::string& output) const {
    return read_file(path(output) / "adapter_model.safetensors");
  }
};

TEST_F(PipelineAdapterJob, FineTuningHasTheLossesOfOneProcessAndContinues) {
  for (const char* family : {"llama", "qwen2"}) {
    const std::string name = family;
    run(family, name, 1, 1);
    const std::vector<Flags> kinds{{"--lora_target_modules", "q_proj,v_proj,down_proj"},
                                   {"--lora_target_modules", "q_proj,v_proj", "--lora_modules_to_save",
                                    "embed_tokens,lm_head", "--use_dora", "true"}};
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      const Flags flags = adapter(kinds[k]);
      const std::string one = text_of(name, " one ", k);
      const std::string two = text_of(name, " stages ", k);
      tune(name, one, 1, 1, flags);
      tune(name, two, 1, 4, flags);
      expect_near(two, one, kTuned);
      expect_near_adapters(two, one);
      // Continues bit for bit, and in one process.
      copy_checkpoint(two, two + " again", 2);
      tune(name, two + " again", 1, 4, flags);
      EXPECT_EQ(adapter_bytes(two + " again"), adapter_bytes(two));
      copy_checkpoint(two, two + " in one", 2);
      tune(name, two + " in one", 1, 1, flags);
      expect_near_adapters(two + " in one", one);
      copy_checkpoint(one, one + " in stages", 2);
      tune(name, one + " in stages", 2, 2, joined(flags, {"--zero_stage", "1"}));
      expect_near_adapters(one + " in stages", one);
    }
  }
}

TEST_F(PipelineAdapterJob, ThePlanIsThatOfTheRunAndIdleStagesAreRefused) {
  const Environment one_thread(kOneThread);
  run("llama", "model", 1, 1, {"--max_steps", "1"});
  const Flags flags = adapter({"--lora_target_modules", "q_proj,v_proj", "--max_steps", "1"});
  const Flags command = fine_tuning("model", "planned", joined(layout(1, 4), flags));
  EXPECT_EQ(planned_lines(plan_of(command), "stage ").size(), 4u);
  finish(command);
  EXPECT_THAT(
      refusal(fine_tuning("model", "none",
                          joined(layout(1, 2), adapter({"--lora_target_modules", "model.layers.3.mlp.down_proj"})))),
      HasSubstr("pipeline_parallel_size: is 2, but stage 0 would have no trained weight"));
}

class PipelineExpertJob : public ProductJob {
 protected:
  static Flags experts(int size, int processes, const Flags& more = {}) {
    return groups("--expert_parallel_size", size, processes, more);
  }
  void expect_near_mixture(const std::string& output, const std::string& one, const Flags& more = {}) const {
    expect_near(output, one,
                joined({"loss", "eval_loss", "grad_norm", "entropy", "num_tokens", "expert_load_cv", "expert_load_max",
                        "eval_expert_load_cv"},
                       more));
  }
};

TEST_F(PipelineExpertJob, PretrainingAndFineTuningHaveTheLossesOfOneProcess) {
  for (const auto& [family, config] : mixtures()) {
    const Flags more = family == "qwen3_moe" ? Flags{"aux_loss"} : Flags{};
    run(family, family + " one", 1, 1);
    run(family, family + " 4", 1, 4);
    expect_near_mixture(family + " 4", family + " one", more);
    expect_near_work(family + " 4", family + " one");
    expect_near_weights(family + " 4", family + " one");
    run(family, family + " 2 x 2", 2, 2, experts(2, 4));
    expect_near_mixture(family + " 2 x 2", family + " one", more);
    expect_near_weights(family + " 2 x 2", family + " one");
    run(family, family + " 2 x 2 x 2", 4, 2, experts(2, 8, {"--zero_stage", "1"}));
    expect_near_mixture(family + " 2 x 2 x 2", family + " one", more);
  }
  tune("mixtral one", "tuned", 1, 1);
  tune("mixtral one", "2 x 2 tuned", 2, 2, experts(2, 4));
  expect_near("2 x 2 tuned", "tuned", {"loss"});
  expect_near_weights("2 x 2 tuned", "tuned");
}

TEST_F(PipelineExpertJob, LossesThatBalanceExpertsAreThoseOfOne) {
  const Flags keys{"--aux_loss_alpha", "0.01", "--mtp_loss_weight", "0.3"};
  run("deepseek_v3", "one", 1, 1, keys);
  run("deepseek_v3", "4", 1, 4, keys);
  expect_near_mixture("4", "one", {"aux_loss", "mtp_loss"});
  expect_near_weights("4", "one");
  run("deepseek_v3", "2 x 4", 4, 2, experts(4, 8, keys));
  expect_near_mixture("2 x 4", "one", {"aux_loss", "mtp_loss"});
}

TEST_F(PipelineExpertJob, ARunRepeatsAndContinuesBitForBit) {
  expect_repeats("deepseek_v3", 2, 2, experts(2, 4));
  expect_resumes("qwen3_moe", "whole experts", 1, 4, {});
  expect_resumes("qwen3_moe", "divided", 4, 2, experts(2, 8, {"--zero_stage", "1"}));
}

TEST_F(PipelineExpertJob, ARunContinuesOnAnotherLayout) {
  run("deepseek_v3", "one", 1, 1);
  run("deepseek_v3", "2 x 2", 2, 2, experts(2, 4));
  const auto continued = [&](const std::string& from, const std::string& to, int data, int stages, const Flags& more) {
    resume("deepseek_v3", from, 4, to, data, stages, more);
    expect_near_end(to, "one", 4);
  };
  continued("one", "a", 2, 2, experts(2, 4));
  continued("2 x 2", "b", 1, 1, {});
  continued("2 x 2", "c", 1, 4, {});
  continued("2 x 2", "d", 4, 1, experts(4, 4));
}

TEST_F(PipelineExpertJob, ThePlanIsThatOfTheRun) {
  const Environment one_thread(kOneThread);
  for (const Flags& more : {Flags{}, experts(2, 4)}) {
    const Flags command =
        arguments("deepseek_v3", "planned", 1, 2, joined(more, {"--max_steps", "1", "--overwrite_output_dir", "true"}));
    EXPECT_EQ(planned_lines(plan_of(command), "stage ").size(), 2u);
    finish(command);
  }
  EXPECT_THAT(refusal(arguments("deepseek_v3", "none", 2, 2, experts(2, 2))),
              HasSubstr("expert_parallel_size: is 2 with pipeline_parallel_size 2, which does not divide "
                        "num_processes 2"));
}

using PipelineZeroJob = ProductJob;

TEST_F(PipelineZeroJob, DividedGradientsAndWeightsHaveTheLossesOfOne) {
  const auto expect_stages = [&](const std::string& family, const std::string& name, int data, const Flags& more) {
    for (const char* stage : {"0", "1", "2", "3"}) {
      run(family, name + stage, data, 2, joined(more, {"--zero_stage", stage}));
      expect_near(name + stage, family + " one");
    }
    EXPECT_EQ(weights(name + "1"), weights(name + "0"));
    EXPECT_EQ(weights(name + "3"), weights(name + "2"));
  };
  for (const char* family : {"qwen2", "llama"}) {
    run(family, std::string(family) + " one", 1, 1);
    expect_stages(family, std::string(family) + " ", 2, {});
  }
  expect_stages("qwen2", "tensor ", 2, groups("--tensor_parallel_size", 2, 8));
  run("deepseek_v3", "deepseek_v3 one", 1, 1);
  expect_stages("deepseek_v3", "experts ", 4, groups("--expert_parallel_size", 2, 8));
}

TEST_F(PipelineZeroJob, ARunRepeatsAndContinuesBitForBit) {
  expect_repeats("qwen2", 2, 2, {"--zero_stage", "3"});
  expect_resumes("gpt2", "2", 2, 4, {"--zero_stage", "2"});
  expect_resumes("qwen3_moe", "experts", 4, 2, groups("--expert_parallel_size", 2, 8, {"--zero_stage", "3"}));
  expect_resumes(
      "gpt2", "8 bits", 2, 2,
      {"--zero_stage", "3", "--torch_dtype", "bfloat16", "--optim", "adamw_8bit", "--gradient_dtype", "bfloat16"});
}

TEST_F(PipelineZeroJob, ARunContinuesOnAnotherLayout) {
  run("qwen2", "one", 1, 1);
  run("qwen2", "divided", 2, 2, {"--zero_stage", "3"});
  const auto continued = [&](const std::string& from, const std::string& to, int data, int stages, const Flags& more) {
    resume("qwen2", from, 4, to, data, stages, more);
    expect_near_end(to, "one", 4);
  };
  continued("one", "a", 2, 4, {"--zero_stage", "3"});
  continued("divided", "b", 1, 1, {});
  continued("divided", "c", 1, 4, {});
  continued("divided", "d", 4, 2, {"--zero_stage", "2"});
}

TEST_F(PipelineZeroJob, ThePlanIsThatOfTheRun) {
  const Environment one_thread(kOneThread);
  double whole = 0;
  for (const char* zero : {"0", "2", "3"}) {
    const Flags more{"--zero_stage", zero, "--max_steps", "1", "--overwrite_output_dir", "true"};
    const Flags command = arguments("llama", "planned", 2, 2, more);
    const std::string plan = plan_of(command);
    EXPECT_EQ(planned_lines(plan, "stage ").size(), 2u);
    const double weights = planned_bytes(planned_lines(plan, "weights").at(0));
    if (whole == 0) whole = weights;
    if (std::string(zero) == "3") {
      EXPECT_LT(weights, 0.7 * whole);
    }
    finish(command);
  }
}

// Models whose linear layers and experts have dimensions that are multiples of 128.
class PipelineFp8Job : public ProductJob {
 protected:
  PipelineFp8Job() {
    const std::string shared =
        R"("vocab_size": 308, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 4,
           "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": 256,
           "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.05, "tie_word_embeddings": false)";
    write_file(path("dense.json"), R"({"model_type": "llama", )" + shared + "}");
    write_file(path("experts.json"), R"({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
               "norm_topk_prob": true, "moe_intermediate_size": 128, )" +
                                         shared + "}");
  }
};

// Stages quantize what one process does. Norms of gradients are sums in another order, so that nothing may be clipped.
TEST_F(PipelineFp8Job, StagesHaveTheBitsOfOneProcess) {
  const Flags fp8{"--fp8", "true", "--torch_dtype", "bfloat16", "--max_grad_norm", "1000", "--max_steps", "4"};
  for (const char* model : {"dense", "experts"}) {
    const std::string name = model;
    run(name, name + " one", 1, 1, fp8);
    run(name, name + " in bf16", 1, 1, {"--torch_dtype", "bfloat16", "--max_grad_norm", "1000", "--max_steps", "4"});
    EXPECT_NE(weights(name + " in bf16"), weights(name + " one")) << "nothing is multiplied in FP8";
    for (const auto& [stages, chunks] : std::vector<std::pair<int, const char*>>{{2, "1"}, {4, "1"}, {2, "2"}}) {
      for (const char* recomputed : {"false", "true"}) {
        const std::string output = text_of(name, " ", stages, " ", chunks, " ", recomputed);
        run(name, output, 1, stages,
            joined(fp8, {"--gradient_checkpointing", recomputed, "--virtual_pipeline_parallel_size", chunks}));
        EXPECT_EQ(series(output, "loss"), series(name + " one", "loss")) << output;
        EXPECT_EQ(series(output, "eval_loss"), series(name + " one", "eval_loss")) << output;
        EXPECT_EQ(weights(output), weights(name + " one")) << output;
      }
    }
  }
  // With other groups it runs, and repeats its bits.
  const Flags context = groups("--context_parallel_size", 2, 8, fp8);
  run("dense", "a", 2, 2, context);
  run("dense", "b", 2, 2, context);
  expect_same_bits("a", "b");
  const Flags experts = groups("--expert_parallel_size", 2, 4, fp8);
  run("experts", "c", 2, 2, experts);
  run("experts", "d", 2, 2, experts);
  expect_same_bits("c", "d");
}

}  // namespace
}  // namespace hone::test::products
