// Tests of context parallelism: losses and gradients of a context group next to those of one process, on CPUs.
#include "passes/context_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "data/context_share.h"
#include "job/job_fixture.h"
#include "model/registry.h"
#include "ops/document_mean/document_mean.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/next_in_document/next_in_document.h"
#include "ops/registry.h"
#include "ops/scale/scale.h"
#include "ops/weighted_sum/weighted_sum.h"
#include "program/memory_plan.h"
#include "support/models.h"
#include "support/rank_threads.h"
#include "train/loss_program.h"

namespace hone::test {
namespace {

using ::testing::HasSubstr;

// Small models of the families, with two query heads for each key head where a family has them.
Configs small_models() {
  return {{"llama", SmallModel{.type = "llama", .key_heads = 2, .positions = 512}.config()},
          {"qwen3", SmallModel{.type = "qwen3", .tied = true, .key_heads = 2, .positions = 512}.config()},
          {"gpt2", SmallModel{.type = "gpt2", .positions = 512}.config()}};
}

// Documents of which the longest are cut by themselves and the others together, at 2 and at 4 ranks.
HostBatch documents_of_all_lengths() { return batch_of(random_documents(3, std::vector{17, 300, 5, 1, 511, 30}, 300)); }

// A loss whose tokens depend on others of their documents besides in attention: targets are the next tokens, and a
// token's term is the mean of its document.
Program trace_document_loss(const Model& model, const LossProgramOptions& options) {
  Program program;
  DocumentBatch batch(program, options.capacity);
  batch.learns = true;
  WeightBinder weights(program, model.traced_weights(), true);
  const Tensor hidden = model.forward(weights, batch);
  const Scope scope(program, "head");
  const Tensor bounds = program.tensor(program.find(Role::kInput, "cu_seqlens"));
  const Tensor targets = next_in_document(batch.tokens, bounds, {.last = -1});
  const LinearLogprobs head = linear_logprobs(hidden, weights(model.head()), targets, {});
  const Tensor of_tokens = program.input("loss_weights", {DType::kF32, {{options.capacity.tokens, Count::tokens}}});
  const Tensor counted = program.input("counted", of_tokens.type());
  (void)batch.targets();
  program.output("loss", weighted_sum(scale(document_mean(head.logp, targets, bounds), -1.0), of_tokens));
  program.output("entropy", weighted_sum(head.entropy, counted));
  program.output("hits", weighted_sum(head.hit, counted));
  if (options.context_size > 1) program = divide_tokens(program, options.context_size);
  return Compiler(options.compile).training(std::move(program), "loss");
}

using Trace = Program (*)(const Model&, const LossProgramOptions&);

// The losses of one rank's tokens, their number, and the bytes of its program's arena.
struct ContextRank {
  RankLosses losses;
  std::int64_t tokens = 0;
  std::size_t arena = 0;
};

ContextRank run_rank(const std::string& config, Trace trace, int rank, int ranks, Recompute recompute,
                     const HostBatch& whole) {
  const std::unique_ptr<Model> model = model_of(config);
  LossProgramOptions options;
  options.capacity = {whole.token_count() + 7, whole.document_count() + 2};
  options.compile.recompute = recompute;
  options.context_size = ranks;
  Program program = trace(*model, options);
  const std::size_t arena = plan_memory(program, DeviceKind::kCpu).arena;
  const HostBatch batch = ranks > 1 ? context_share(whole, rank, ranks) : whole;
  return {run_losses(std::move(program), *model, {&batch, 1}, 1.0 / static_cast<double>(whole.target_tokens)),
          batch.token_count(), arena};
}

ContextRank one_process(const std::string& config, Trace trace, const HostBatch& whole = documents_of_all_lengths()) {
  register_operations();
  return run_rank(config, trace, 0, 1, Recompute::kNone, whole);
}

// The same by a thread for each rank.
std::vector<ContextRank> run_context_group(const std::string& config, Trace trace, int ranks,
                                           Recompute recompute = Recompute::kNone,
                                           const HostBatch& whole = documents_of_all_lengths()) {
  register_operations();
  std::vector<ContextRank> of_rank(static_cast<std::size_t>(ranks));
  run_group(ranks, &MeshCollectives::context, [&](int rank) {
    of_rank[static_cast<std::size_t>(rank)] = run_rank(config, trace, rank, ranks, recompute, whole);
  });
  return of_rank;
}

// Sums over the ranks, in their order.
RankLosses sums_of(const std::vector<ContextRank>& ranks) {
  RankLosses all{.sums = {0, 0, 0}, .gradients = {}};
  for (const ContextRank& each : ranks) {
    for (std::size_t i = 0; i < all.sums.size(); ++i) all.sums[i] += each.losses.sums[i];
    for (const auto& [name, values] : each.losses.gradients) add_to(all.gradients[name], values);
  }
  return all;
}

void expect_near_group(const std::vector<ContextRank>& group, const ContextRank& one, const std::string& what) {
  const RankLosses all = sums_of(group);
  expect_near_sums(all.sums, one.losses.sums, what);
  expect_near_gradients(all.gradients, one.losses.gradients, what);
}

TEST(ContextParallel, GradientsAreThoseOfOneProcess) {
  for (const auto& [name, config] : small_models()) {
    const ContextRank one = one_process(config, trace_training);
    for (const int ranks : {2, 3, 4}) {
      const std::vector<ContextRank> group = run_context_group(config, trace_training, ranks);
      expect_near_group(group, one, text_of(name, " on ", ranks));
      const auto [least, most] = std::ranges::minmax(group, {}, &ContextRank::tokens);
      EXPECT_LE(most.tokens - least.tokens, 1);
      for (const ContextRank& each : group) EXPECT_LT(each.arena, one.arena) << name;
    }
  }
}

TEST(ContextParallel, MixturesAndLatentHeadsHaveTheGradientsOfOneProcess) {
  for (const std::string name : {"mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3"}) {
    const std::string config = FixtureModel(name).model->config().dump();
    const ContextRank one = one_process(config, trace_training);
    for (const int ranks : {2, 4}) expect_near_group(run_context_group(config, trace_training, ranks), one, name);
  }
}

// The loss is that of one token, to which other ranks add zeros.
TEST(ContextParallel, ATokenHasTheBitsOfOneProcess) {
  Configs models = small_models();
  models["mixtral"] = FixtureModel("mixtral").model->config().dump();
  for (const auto& [name, config] : models) {
    for (const std::size_t token : {3, 150, 310, 500, 832, 850}) {
      HostBatch batch = documents_of_all_lengths();
      std::ranges::fill(batch.loss_weights, 0.0f);
      batch.loss_weights[token] = 1;
      batch.target_tokens = 1;
      const RankLosses one = one_process(config, trace_training, batch).losses;
      EXPECT_GT(one.sums[0], 1.0);
      const auto group = run_context_group(config, trace_training, 3, Recompute::kNone, batch);
      EXPECT_EQ(sums_of(group).sums, one.sums) << name << ", token " << token;
    }
  }
}

TEST(ContextParallel, TargetsAndMeansOfDocumentsCrossTheRanks) {
  const std::string config = small_models().at("qwen3");
  const ContextRank one = one_process(config, trace_document_loss);
  EXPECT_GT(one.losses.sums[0], 1.0);
  for (const int ranks : {2, 4}) {
    expect_near_group(run_context_group(config, trace_document_loss, ranks), one, text_of(ranks, " ranks"));
  }
}

TEST(ContextParallel, RecomputationAndAnotherRunChangeNoBit) {
  const std::string config = small_models().at("llama");
  const RankLosses first = sums_of(run_context_group(config, trace_training, 3));
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
    const RankLosses again = sums_of(run_context_group(config, trace_training, 3, recompute));
    EXPECT_EQ(again.sums, first.sums);
    EXPECT_EQ(again.gradients, first.gradients);
  }
}

TEST(ContextParallel, AnOperationThatNeedsAllTokensIsNamed) {
  register_operations();
  Program program;
  const DocumentBatch batch(program, {64, 4});
  const Tensor x = program.input("x", {DType::kF32, {{64, Count::tokens}, 3}});
  program.output("y", gather_rows(x, program.input("index", {DType::kI32, {2}})));
  try {
    (void)divide_tokens(program, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("context_parallel_size: is 2, but the tokens of gather_rows"));
  }
}

// Runs on packed rows and on rows of one document.
class ContextJob : public DividedJob {
 protected:
  ContextJob()
      : DividedJob({.size_flag = "--context_parallel_size", .pretraining = {"--block_size", "300"}}, small_models()) {}
};

TEST_F(ContextJob, ProcessesHaveTheLossesOfOne) {
  for (const auto& [name, config] : small_models()) {
    run(name, name + " one", 1, 1);
    run(name, name + " 2", 1, 2);
    expect_near(name + " 2", name + " one");
    expect_near_weights(name + " 2", name + " one");
    const Flags sgd{"--optim", "sgd", "--learning_rate", "0.1"};
    run(name, name + " sgd one", 1, 1, sgd);
    run(name, name + " sgd 2", 1, 2, sgd);
    expect_near_weights(name + " sgd 2", name + " sgd one", 1e-5);
  }
  run("qwen3", "qwen3 4", 1, 4);
  expect_near("qwen3 4", "qwen3 one");
  run("gpt2", "gpt2 2 x 2", 2, 2);
  expect_near("gpt2 2 x 2", "gpt2 one");
}

TEST_F(ContextJob, DividedStatesGradientsAndWeightsHaveTheLossesOfOne) {
  run("llama", "one", 1, 1);
  run("llama", "0", 2, 2);
  for (const char* stage : {"1", "2", "3"}) {
    run("llama", stage, 2, 2, {"--zero_stage", stage});
    expect_near(stage, "one");
  }
  EXPECT_EQ(weights("1"), weights("0"));
  EXPECT_EQ(weights("3"), weights("2"));
}

TEST_F(ContextJob, LongDocumentsAreCutByThemselves) {
  // Each document of several examples' text fills a row, of which two ranks have two pieces each.
  std::string text;
  std::string rows;
  int count = 0;
  for (const std::string& line : split(read_file(path("data/corpus.jsonl")), '\n')) {
    if (line.empty()) continue;
    text += parse_json(line, "corpus.jsonl").at("text").get<std::string>() + " ";
    if (++count % 25 != 0) continue;
    rows += Json{{"text", text}}.dump() + "\n";
    text.clear();
  }
  write_file(path("long.jsonl"), rows);
  const Flags data{"--dataset_name", path("long.jsonl").string(), "--block_size", "512"};
  run("qwen3", "one", 1, 1, data);
  run("qwen3", "two", 1, 2, data);
  run("qwen3", "again", 1, 2, data);
  expect_near("two", "one");
  EXPECT_EQ(weights("again"), weights("two"));
}

TEST_F(ContextJob, TensorGroupsHaveTheLossesOfOne) {
  for (const char* family : {"llama", "gpt2"}) {
    const std::string name = family;
    run(name, name + " one", 1, 1);
    run(name, name + " 2 x 2", 1, 2, {"--tensor_parallel_size", "2", "--num_processes", "4"});
    expect_near(name + " 2 x 2", name + " one");
  }
  run("gpt2", "2 x 2 x 2", 2, 2, {"--tensor_parallel_size", "2", "--num_processes", "8", "--zero_stage", "3"});
  expect_near("2 x 2 x 2", "gpt2 one");
}

TEST_F(ContextJob, TheSameJobHasTheSameBits) {
  run("qwen3", "a", 1, 2);
  run("qwen3", "b", 1, 2, {"--gradient_checkpointing", "true"});
  expect_same_bits("b", "a");
}

TEST_F(ContextJob, ARunIsFineTunedPackedAndNot) {
  for (const char* family : {"llama", "qwen3", "gpt2"}) {
    run(family, "model", 1, 1, {"--overwrite_output_dir", "true"});
    for (const std::string packing : {"false", "true"}) {
      const Flags more{"--packing", packing, "--max_length", "256"};
      const std::string name = text_of(family, " packing ", packing, " ");
      tune("model", name + "one", 1, 1, more);
      tune("model", name + "two", 1, 2, more);
      expect_near(name + "two", name + "one", kTuned);
      expect_near_weights(name + "two", name + "one");
    }
  }
  tune("model", "four", 2, 2, {"--packing", "true", "--max_length", "256", "--zero_stage", "2"});
  expect_near("four", "gpt2 packing true one", kTuned);
}

TEST_F(ContextJob, ARunContinuesBitForBitAndOnAnotherLayout) {
  run("llama", "one", 1, 1);
  expect_resumes("llama", "divided", 2, 2, {"--zero_stage", "1"});
  const auto continued = [&](const std::string& from, const std::string& to, int data, int context,
                             const Flags& more = {}) {
    resume("llama", from, 4, to, data, context, more);
    expect_near_end(to, "one", 4);
  };
  continued("divided whole", "a", 1, 1);
  continued("divided whole", "b", 1, 4, {"--zero_stage", "3"});
  continued("one", "c", 1, 2);
}

TEST_F(ContextJob, AnAdapterHasTheLossesOfOne) {
  run("llama", "model", 1, 1);
  const Flags adapter{"--use_peft", "true", "--lora_r", "4", "--lora_dropout", "0", "--learning_rate", "1e-3"};
  tune("model", "adapter one", 1, 1, adapter);
  tune("model", "adapter two", 1, 2, adapter);
  expect_near("adapter two", "adapter one", {"loss", "grad_norm"});
}

TEST_F(ContextJob, APlanTakesLessMemoryThanThatOfOneProcess) {
  const Environment one_thread(kOneThread);
  std::map<int, double> bytes;
  for (const int context : {1, 2, 4}) {
    const auto total = planned_lines(
        plan_of(arguments("llama", "planned", 1, context, {"--eval_strategy", "no", "--test_split_size", "0"})),
        "total");
    ASSERT_EQ(total.size(), 1u);
    bytes[context] = planned_bytes(total[0]);
    ASSERT_GT(bytes[context], 0);
  }
  EXPECT_LT(bytes[2], 0.65 * bytes[1]);
  EXPECT_LT(bytes[4], 0.65 * bytes[2]);
}

TEST_F(ContextJob, WhatIsMissingIsRefused) {
  EXPECT_THAT(refusal(arguments("llama", "none", 1, 2, {"--num_processes", "3"})),
              HasSubstr("context_parallel_size: is 2, which does not divide num_processes 3"));
  EXPECT_THAT(refusal(arguments("llama", "none", 1, 2, {"--tensor_parallel_size", "2"})),
              HasSubstr("is 2 with tensor_parallel_size 2, which does not divide num_processes 2"));
  EXPECT_THAT(refusal(arguments("llama", "none", 1, 1, {"--context_parallel_size", "0"})),
              HasSubstr("context_parallel_size"));
  EXPECT_THAT(refusal(reinforcement("none", "g", {"--num_processes", "2", "--context_parallel_size", "2"})),
              HasSubstr("context_parallel_size: is 2; hone grpo computes whole sequences"));
}

}  // namespace
}  // namespace hone::test
