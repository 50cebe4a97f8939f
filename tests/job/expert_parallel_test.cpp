// Tests of expert parallelism: gradients and losses of expert groups next to those of one process, on CPUs.
#include "model/expert_parallel_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "job/job_fixture.h"
#include "job/mixtures.h"
#include "model/tensor_parallel_model.h"
#include "ops/registry.h"
#include "support/models.h"
#include "support/rank_threads.h"
#include "train/loss_program.h"

namespace hone::test {
namespace {

using ::testing::HasSubstr;

// Documents of a rank; those of different ranks differ in number and length.
HostBatch batch_of_rank(int rank) {
  std::vector<int> lengths;
  for (int d = 0; d <= rank; ++d) lengths.push_back(17 + 5 * d);
  return batch_of(random_documents(static_cast<std::uint64_t>(rank) + 3, lengths, 308));
}

RankLosses run_mixture(const Model& model, std::span<const HostBatch> batches, Recompute recompute = Recompute::kNone) {
  LossProgramOptions options{.capacity = {160, 8}};
  options.compile.recompute = recompute;
  return run_losses(trace_training(model, options), model, batches, 0.01);
}

// One process computes the documents of `ranks` ranks, one micro-batch after the other.
RankLosses one_process_of(const std::string& family, int ranks) {
  std::vector<HostBatch> batches;
  for (int rank = 0; rank < ranks; ++rank) batches.push_back(batch_of_rank(rank));
  return run_mixture(*mixture_of(family), batches);
}

// The same by a thread for each rank of an expert group. Gradients of experts come from the rank that has them; those
// of other weights are added.
RankLosses expert_group_of(const std::string& family, int size, Recompute recompute = Recompute::kNone) {
  register_operations();
  std::vector<RankLosses> of_rank(static_cast<std::size_t>(size));
  run_group(size, &MeshCollectives::experts, [&](int rank) {
    const HostBatch batch = batch_of_rank(rank);
    of_rank[static_cast<std::size_t>(rank)] =
        run_mixture(ExpertParallelModel(mixture_of(family), rank, size), {&batch, 1}, recompute);
  });
  RankLosses all{.sums = {0, 0, 0}, .gradients = {}};
  const std::unique_ptr<Model> model = mixture_of(family);
  for (int rank = 0; rank < size; ++rank) {
    const RankLosses& own = of_rank[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < all.sums.size(); ++i) all.sums[i] += own.sums[i];
    for (const WeightSpec& spec : model->weights()) {
      const std::vector<float>& values = own.gradients.at(spec.name);
      std::vector<float>& whole = all.gradients[spec.name];
      const WeightSpec part = expert_spec(spec, rank, size);
      if (!is_divided(part)) {
        add_to(whole, values);
        continue;
      }
      whole.resize(values.size() * static_cast<std::size_t>(size));
      put_part(part, spec, sizeof(float), std::as_bytes(std::span(values)), std::as_writable_bytes(std::span(whole)));
    }
  }
  return all;
}

TEST(ExpertParallel, GradientsAreThoseOfOneProcess) {
  for (const auto& [family, config] : mixtures()) {
    for (const int size : {2, 4}) {
      const RankLosses one = one_process_of(family, size);
      const RankLosses group = expert_group_of(family, size);
      EXPECT_NEAR(group.sums[0], one.sums[0], 1e-5 * std::abs(one.sums[0])) << family;
      expect_near_gradients(group.gradients, one.gradients, family);
    }
  }
}

TEST(ExpertParallel, RecomputationAndAnotherRunChangeNoBit) {
  const RankLosses first = expert_group_of("deepseek_v3", 4);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
    const RankLosses again = expert_group_of("deepseek_v3", 4, recompute);
    EXPECT_EQ(again.sums, first.sums);
    EXPECT_EQ(again.gradients, first.gradients);
  }
}

TEST(ExpertParallel, PartsOfAllRanksAreTheWeight) {
  for (const auto& [family, config] : mixtures()) {
    const std::unique_ptr<Model> model = mixture_of(family);
    std::vector<std::unique_ptr<Model>> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      ranks.push_back(std::make_unique<ExpertParallelModel>(mixture_of(family), rank, 4));
    }
    const std::map<std::string, double> copies = expect_parts_of_whole(*model, ranks, expert_spec, family);
    for (const WeightSpec& spec : model->weights()) {
      EXPECT_EQ(copies.at(spec.name), spec.kind == WeightKind::expert ? 1.0 : 4.0) << family << ", " << spec.name;
    }
  }
}

TEST(ExpertParallel, WhatTheProcessesDoNotDivideIsNamed) {
  const auto refused = [](std::unique_ptr<Model> model, int size) -> std::string {
    try {
      const ExpertParallelModel divided(std::move(model), 0, size);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(refused(mixture_of("qwen3_moe"), 3), HasSubstr("expert_parallel_size: is 3, but a layer has 4 experts"));
  EXPECT_THAT(refused(std::move(FixtureModel("llama").model), 2),
              HasSubstr("expert_parallel_size: is 2, but the model has no mixture of experts"));
}

class ExpertJob : public DividedJob {
 protected:
  ExpertJob() : DividedJob({.size_flag = "--expert_parallel_size", .divides_sequences = true}, mixtures()) {}

  // Expects the same metrics and final weights up to the rounding of f32.
  void expect_near_run(const std::string& output, const std::string& one, const Flags& more = {}) const {
    expect_near(output, one,
                joined({"loss", "eval_loss", "grad_norm", "entropy", "epoch", "num_tokens", "expert_load_cv",
                        "expert_load_max", "eval_expert_load_cv"},
                       more));
    expect_near_weights(output, one);
  }
};

TEST_F(ExpertJob, ProcessesHaveTheLossesOfOne) {
  for (const auto& [family, config] : mixtures()) {
    run(family, family + " one", 1, 1);
    const Flags more = family == "qwen3_moe" ? Flags{"aux_loss"} : Flags{};
    run(family, family + " 2", 2, 2);
    expect_near_run(family + " 2", family + " one", more);
    run(family, family + " 2 x 2", 4, 2);
    expect_near_run(family + " 2 x 2", family + " one", more);
    run(family, family + " 4", 4, 4);
    expect_near_run(family + " 4", family + " one", more);
  }
}

TEST_F(ExpertJob, ProcessesWithAllExpertsHaveTheLossesOfOne) {
  for (const std::string family : {"qwen3_moe", "deepseek_v3"}) {
    run(family, family + " one", 1, 1);
    run(family, family + " 2", 2, 1);
    expect_near_run(family + " 2", family + " one");
  }
}

TEST_F(ExpertJob, LossesThatBalanceExpertsAreThoseOfOne) {
  const Flags keys{"--aux_loss_alpha", "0.01", "--mtp_loss_weight", "0.3"};
  run("deepseek_v3", "one", 1, 1, keys);
  run("deepseek_v3", "4", 4, 4, keys);
  expect_near_run("4", "one", {"aux_loss", "mtp_loss"});
}

TEST_F(ExpertJob, TheSameJobHasTheSameBits) {
  run("deepseek_v3", "a", 4, 2);
  run("deepseek_v3", "b", 4, 2, {"--gradient_checkpointing", "true"});
  expect_same_bits("b", "a");
}

TEST_F(ExpertJob, DividedStatesGradientsAndWeightsHaveTheLossesOfOne) {
  run("qwen3_moe", "one", 1, 1);
  for (const int experts : {2, 4}) {
    const std::string group = std::to_string(experts) + " ";
    run("qwen3_moe", group + "0", 4, experts);
    for (const char* stage : {"1", "2", "3"}) {
      run("qwen3_moe", group + stage, 4, experts, {"--zero_stage", stage});
      expect_near_run(group + stage, "one");
    }
    EXPECT_EQ(weights(group + "1"), weights(group + "0"));
    EXPECT_EQ(weights(group + "3"), weights(group + "2"));
  }
}

TEST_F(ExpertJob, ARunContinuesBitForBit) {
  const std::vector<Flags> kinds{{},
                                 {"--zero_stage", "1"},
                                 {"--zero_stage", "3"},
                                 {"--torch_dtype", "bfloat16"},
                                 {"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"},
                                 {"--optim", "sgd", "--optim_args", "momentum=0.9"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    expect_resumes("deepseek_v3", std::to_string(kind), kind < 3 ? 4 : 2, 2, kinds[kind]);
  }
}

TEST_F(ExpertJob, ARunContinuesOnAnotherLayout) {
  run("deepseek_v3", "one", 1, 1);
  run("deepseek_v3", "from 4", 4, 4, {"--zero_stage", "1"});
  const auto continued = [&](const std::string& from, const std::string& to, int processes, int experts,
                             const Flags& more = {}) {
    resume("deepseek_v3", from, 4, to, processes, experts, more);
    expect_near_end(to, "one", 4);
  };
  continued("one", "a", 2, 2);
  continued("one", "b", 4, 2, {"--zero_stage", "3"});
  continued("from 4", "c", 1, 1);
  continued("from 4", "d", 4, 2);
  continued("from 4", "e", 2, 1);
}

TEST_F(ExpertJob, AModelOfAFolderIsFineTunedAndIsAnOrdinaryFolder) {
  run("mixtral", "model", 1, 1);
  tune("model", "one", 1, 1);
  tune("model", "two", 2, 2);
  tune("model", "four", 4, 2);
  ASSERT_EQ(series("one", "loss").size(), 6u);
  for (const char* output : {"two", "four"}) {
    expect_near(output, "one", {"loss"});
    expect_near_weights(output, "one");
  }
}

TEST_F(ExpertJob, BadInputHasOneLine) {
  const auto refused = [&](const std::string& family, int processes, int experts, const Flags& more = {}) {
    return refusal(arguments(family, "refused", processes, experts, more));
  };
  EXPECT_THAT(refused("qwen3_moe", 3, 3), HasSubstr("expert_parallel_size: is 3, but a layer has 4 experts"));
  EXPECT_THAT(refused("qwen3_moe", 2, 4),
              HasSubstr("expert_parallel_size: is 4, which does not divide num_processes 2"));
  EXPECT_THAT(refused("qwen3_moe", 2, 2, {"--benchmarks", "gsm8k"}),
              HasSubstr("benchmarks: need whole weights on the device, which expert_parallel_size divides"));
  EXPECT_THAT(refused("qwen3_moe", 2, 2, {"--model_config_path", path("model.json").string()}),
              HasSubstr("the model has no mixture of experts"));
}

}  // namespace
}  // namespace hone::test
