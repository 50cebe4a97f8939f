// Tests of tensor parallelism: gradients and losses of a tensor group next to those of one process, on CPUs.
#include "model/tensor_parallel_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "cli/program.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "job/job_fixture.h"
#include "job/mixtures.h"
#include "job/tensor_group.h"
#include "support/models.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(TensorParallel, GradientsAreThoseOfOneProcess) {
  for (const auto& [family, config] : dense_families()) {
    const RankLosses one = tensor_group(config, {});
    for (const int size : {2, 4}) {
      const RankLosses group = tensor_group(config, {.size = size});
      expect_near_sums(group.sums, one.sums, family);
      expect_near_gradients(group.gradients, one.gradients, family);
    }
  }
}

TEST(TensorParallel, RecomputationAndAnotherRunChangeNoBit) {
  const std::string config = dense_families().at("qwen2");
  const RankLosses first = tensor_group(config, {.size = 2});
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
    const RankLosses again = tensor_group(config, {.size = 2, .recompute = recompute});
    EXPECT_EQ(again.sums, first.sums);
    EXPECT_EQ(again.gradients, first.gradients);
  }
}

TEST(TensorParallel, PartsOfAllRanksAreTheWeight) {
  for (const auto& [family, config] : dense_families()) {
    const std::unique_ptr<Model> model = model_of(config);
    std::vector<std::unique_ptr<Model>> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      ranks.push_back(std::make_unique<TensorParallelModel>(model_of(config), rank, 4));
    }
    const std::map<std::string, double> copies = expect_parts_of_whole(*model, ranks, part_spec, family);
    for (const WeightSpec& spec : model->weights()) {
      if (spec.kind == WeightKind::linear) {
        EXPECT_EQ(copies.at(spec.name), 1.0) << family << ", " << spec.name << " is not divided";
      }
    }
  }
}

TEST(TensorParallel, WhatTheProcessesDoNotDivideIsNamed) {
  const auto refused = [](const std::string& config, int size) -> std::string {
    try {
      const TensorParallelModel model(model_of(config), 0, size);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(refused(SmallModel{.type = "llama"}.config(), 3),
              HasSubstr("tensor_parallel_size: is 3, but num_attention_heads is 4"));
  EXPECT_THAT(refused(SmallModel{.type = "llama", .key_heads = 2}.config(), 4),
              HasSubstr("tensor_parallel_size: is 4, but num_key_value_heads is 2"));
  EXPECT_THAT(refused(SmallModel{.type = "llama", .intermediate = 46}.config(), 4),
              HasSubstr("model.layers.0.mlp.gate_proj.weight has 46 channels"));
  Json experts = parse_json(mixtures().at("mixtral"), "mixtral");
  experts["num_local_experts"] = 6;
  EXPECT_THAT(refused(experts.dump(), 4), HasSubstr("tensor_parallel_size: is 4, but a layer has 6 experts"));
}

class TensorJob : public DividedJob {
 protected:
  TensorJob()
      : DividedJob({.size_flag = "--tensor_parallel_size", .max_steps = 12, .eval_steps = 6}, dense_families()) {
    for (const auto& [family, config] : mixtures()) write_file(path(family + ".json"), config);
  }
};

TEST_F(TensorJob, ProcessesHaveTheLossesOfOne) {
  for (const auto& [name, config] : dense_families()) {
    run(name, name + " one", 1, 1);
    run(name, name + " 2", 1, 2);
    expect_near(name + " 2", name + " one");
    run(name, name + " 2 x 2", 2, 2);
    expect_near(name + " 2 x 2", name + " one");
  }
  run("llama", "llama 4", 1, 4);
  expect_near("llama 4", "llama one");
  run("gpt2", "gpt2 4", 1, 4);
  expect_near("gpt2 4", "gpt2 one");
}

TEST_F(TensorJob, DividedStatesGradientsAndWeightsHaveTheLossesOfOne) {
  run("qwen3", "one", 1, 1);
  run("qwen3", "0", 2, 2);
  for (const char* stage : {"1", "2", "3"}) {
    run("qwen3", stage, 2, 2, {"--zero_stage", stage});
    expect_near(stage, "one");
  }
  EXPECT_EQ(weights("1"), weights("0"));
  EXPECT_EQ(weights("3"), weights("2"));
}

TEST_F(TensorJob, TheSameJobHasTheSameBits) {
  run("qwen2", "a", 2, 2);
  run("qwen2", "b", 2, 2, {"--gradient_checkpointing", "true"});
  expect_same_bits("b", "a");
}

TEST_F(TensorJob, ARunContinuesBitForBit) {
  const std::vector<Flags> kinds{{},
                                 {"--zero_stage", "3"},
                                 {"--torch_dtype", "bfloat16"},
                                 {"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"},
                                 {"--optim", "sgd", "--optim_args", "momentum=0.9"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    expect_resumes("gpt2", std::to_string(kind), kind < 2 ? 2 : 1, 2, kinds[kind]);
  }
}

TEST_F(TensorJob, ARunContinuesOnAnotherLayout) {
  for (const char* family : {"qwen2", "gpt2", "llama odd"}) {
    const std::string name = family;
    run(name, name, 1, 1);
    const auto continued = [&](const std::string& from, int step, const std::string& to, int data, int size,
                               const Flags& more = {}) {
      resume(name, from, step, to, data, size, more);
      expect_near_end(to, name, step);
    };
    continued(name, 4, name + " a", 1, 2);
    continued(name + " a", 8, name + " b", 2, 2, {"--zero_stage", "3"});
    continued(name, 4, name + " c", 2, 2, {"--zero_stage", "1"});
    continued(name + " c", 8, name + " d", 1, 1);
    continued(name + " c", 8, name + " e", 1, 4);
  }
}

TEST_F(TensorJob, AModelOfAFolderIsFineTunedAndIsAnOrdinaryFolder) {
  run("llama", "model", 1, 1);
  tune("model", "one", 1, 1);
  tune("model", "two", 1, 2);
  tune("model", "four", 2, 2);
  for (const char* output : {"two", "four"}) {
    expect_near(output, "one", {"loss"});
    expect_near_weights(output, "one");
  }
}

TEST_F(TensorJob, ThePlanIsThatOfTheRun) {
  const Environment one_thread(kOneThread);
  std::map<int, double> weights_of_size;
  for (const int size : {1, 2, 4}) {
    weights_of_size[size] =
        finish_as_planned(arguments("llama", "planned " + std::to_string(size), 1, size, {"--max_steps", "1"}));
  }
  EXPECT_NEAR(weights_of_size[2], weights_of_size[1] / 2, weights_of_size[1] * 0.02);
  EXPECT_NEAR(weights_of_size[4], weights_of_size[1] / 4, weights_of_size[1] * 0.02);
}

TEST_F(TensorJob, AnEvaluationHasTheAnswersOfOneProcess) {
  std::string problems;
  for (int i = 1; i <= 12; ++i) {
    problems += text_of("{\"problem\": \"", i, " + ", i + 1, "\", \"answer\": \"", 2 * i + 1, "\"}\n");
  }
  write_file(path("problems.jsonl"), problems);
  for (const char* family : {"qwen3", "gpt2", "llama odd", "qwen3_moe", "deepseek_v3"}) {
    const std::string name = family;
    run(name, name, 1, 1);
    for (const char* temperature : {"0", "0.8"}) {
      std::string one;
      for (const char* size : {"1", "2", "4"}) {
        const fs::path answers = path(name + " answers " + size + " " + temperature);
        const Ended ended = run_program({"eval", path(name).string(), "--dataset_name", path("problems.jsonl").string(),
                                         "--prompt_template", "{problem}", "--temperature", temperature,
                                         "--max_model_len", "128", "--samples", "2", "--device", "cpu",
                                         "--tensor_parallel_size", size, "--output_dir", answers.string()});
        ASSERT_EQ(ended.code, 0) << ended.output;
        const std::string samples = read_file(answers / "samples.jsonl");
        if (one.empty()) one = samples;
        EXPECT_GT(samples.size(), 1000u);
        EXPECT_EQ(samples, one) << answers;
      }
    }
  }
}

TEST_F(TensorJob, WhatIsMissingIsRefused) {
  EXPECT_THAT(refusal(arguments("llama", "none", 1, 2, {"--num_processes", "3"})),
              HasSubstr("tensor_parallel_size: is 2, which does not divide num_processes 3"));
  EXPECT_THAT(refusal(arguments("llama", "none", 1, 2, {"--optim", "muon"})),
              HasSubstr("tensor_parallel_size: is 2, but optim muon updates whole matrices"));
  EXPECT_THAT(refusal(arguments("llama", "none", 1, 2, {"--benchmarks", "gsm8k"})),
              HasSubstr("benchmarks: need whole weights on the device, which tensor_parallel_size divides"));
  EXPECT_THAT(refusal(arguments("llama", "none", 1, 3)), HasSubstr("is 3, but num_attention_heads is 4"));
}

}  // namespace
}  // namespace hone::test
