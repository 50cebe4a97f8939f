// Tests of pipeline parallelism: gradients, losses and runs of pipelines next to those of one process, on CPUs.
#include "train/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "core/strings.h"
#include "job/job_fixture.h"
#include "model/weights.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/models.h"
#include "support/rank_threads.h"
#include "train/stage_programs.h"

namespace hone::test::pipeline {
namespace {

using ::testing::HasSubstr;

// Configurations of models with four layers: with and without biases, and with a tied head.
Configs families() {
  return {{"llama", SmallModel{.type = "llama", .layers = 4, .key_heads = 2}.config()},
          {"qwen2", SmallModel{.type = "qwen2", .tied = true, .layers = 4, .key_heads = 2}.config()},
          {"gpt2", SmallModel{.type = "gpt2", .layers = 4}.config()}};
}

std::vector<HostBatch> micro_batches(std::size_t count) {
  std::vector<int> lengths;
  for (int b = 0; b < static_cast<int>(count); ++b) lengths.insert(lengths.end(), {17 + b, 5 + b, 30});
  const std::vector<std::vector<TokenId>> documents = random_documents(3, lengths, 308);
  std::vector<HostBatch> batches;
  for (std::size_t b = 0; b < count; ++b) batches.push_back(batch_of(std::span(documents).subspan(3 * b, 3)));
  return batches;
}

constexpr Capacity kCapacity{96, 4};
constexpr double kWeight = 1e-2;

// Losses, entropy, hits and target tokens of a step.
std::vector<double> numbers_of(const LossSums& sums) {
  return {sums.loss, sums.entropy, sums.hits, sums.target_tokens};
}

// Sums of a step and the loss of an evaluation, and gradients.
RankLosses one_process(const std::string& config, std::size_t count) {
  const std::unique_ptr<Model> model = model_of(config);
  const TensorStore weights = random_parts(*model);
  TensorStore gradients(cpu_device(), weight_types(*model, DType::kF32));
  Executable executable(trace_training(*model, {.capacity = kCapacity}), std::make_shared<Arena>(cpu_device()),
                        {.weights = &weights, .gradients = &gradients});
  LossLaunches launches(executable, count, 7, 3, 0);
  for (const HostBatch& batch : micro_batches(count)) launches.launch(batch, kWeight);
  RankLosses results{.sums = numbers_of(launches.sums()), .gradients = values_of(*model, gradients)};
  Executable evaluation(trace_evaluation(*model, {.capacity = kCapacity}), std::make_shared<Arena>(cpu_device()),
                        {.weights = &weights});
  LossLaunches evaluated(evaluation, count);
  for (const HostBatch& batch : micro_batches(count)) evaluated.launch(batch, 1.0);
  results.sums.push_back(evaluated.sums().loss);
  return results;
}

// A policy of recomputation and the memory that decides how much is kept.
struct Kept {
  Recompute recompute = Recompute::kNone;
  std::size_t budget = std::size_t{1} << 30;
};

LossProgramOptions training_options(const StageModel& model, const Kept& kept) {
  LossProgramOptions options{.capacity = kCapacity};
  options.compile.stage = model.cut();
  options.compile.recompute = kept.recompute;
  options.compile.activation_budget = kept.budget;
  return options;
}

// Computes a step and an evaluation on one rank of a pipeline.
void run_stage(const std::string& config, int rank, const PipelineShape& shape, std::size_t count, const Kept& kept,
               RankLosses& results, std::mutex& mutex) {
  const StageModel model(model_of(config), rank, shape.stages, shape.chunks);
  const TensorStore whole = random_weights(model.whole(), 5, DType::kF32, cpu_device());
  Workspace workspace(std::make_shared<Arena>(cpu_device()));
  workspace.add_weights(kWeightStore, weight_types(model, DType::kF32));
  const LossProgramOptions options = training_options(model, kept);
  add_stage_training(workspace, model, options, false);
  add_stage_evaluation(workspace, model, options);
  TensorStore weights(cpu_device(), weight_types(model, DType::kF32));
  for (const WeightSpec& spec : model.weights()) weights.upload(spec.name, whole.download(spec.name));
  workspace.provide(kWeightStore, std::move(weights));
  workspace.allocate(cpu_device());
  const hone::Job job(&current_pipeline_collective()->peers(), {.pipeline_size = shape.stages});
  Pipeline pipeline(workspace, model, job);
  LossSums sums = pipeline.train(micro_batches(count), kWeight, {.seed = 7, .step = 3, .first = 0});
  LossSums evaluated;
  pipeline.evaluate(micro_batches(count), evaluated);
  const std::lock_guard lock(mutex);
  if (rank + 1 == shape.stages) {
    results.sums = numbers_of(sums);
    results.sums.push_back(evaluated.loss);
  } else {
    EXPECT_EQ(numbers_of(sums), std::vector<double>(4, 0.0)) << "a stage without the head has a loss";
  }
  for (const auto& [name, gradient] : values_of(model, workspace.store(kGradientStore))) {
    std::vector<float>& all = results.gradients[name];
    if (!all.empty()) {
      EXPECT_EQ(all, gradient) << name << " differs between the ends of the pipeline";
    }
    all = gradient;
  }
}

RankLosses pipeline_of(const std::string& config, const PipelineShape& shape, std::size_t count,
                       const Kept& kept = {}) {
  register_operations();
  RankLosses results;
  std::mutex mutex;
  run_group(shape.stages, &MeshCollectives::pipeline,
            [&](int rank) { run_stage(config, rank, shape, count, kept, results, mutex); });
  return results;
}

TEST(Pipeline, GradientsAreThoseOfOneProcess) {
  Configs configs = families();
  configs["gpt2 dropout"] = SmallModel{.type = "gpt2", .layers = 4, .dropout = 0.1}.config();
  for (const auto& [family, config] : configs) {
    for (const std::size_t count : {1, 3, 6}) {
      const RankLosses one = one_process(config, count);
      for (const int size : {2, 3, 4}) {
        const RankLosses stages = pipeline_of(config, {size}, count);
        expect_near_sums(stages.sums, one.sums, text_of(family, ", ", size, " stages"));
        expect_near_gradients(stages.gradients, one.gradients, text_of(family, ", ", size, " stages"));
      }
    }
  }
}

TEST(Pipeline, RecomputationAndAnotherRunChangeNoBit) {
  const std::string config = families().at("qwen2");
  const RankLosses first = pipeline_of(config, {3}, 5);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers, Recompute::kAutomatic}) {
    const RankLosses again = pipeline_of(config, {3}, 5, {recompute});
    EXPECT_EQ(again.sums, first.sums);
    EXPECT_EQ(again.gradients, first.gradients);
  }
}

// Configurations of families() with some other number of layers.
std::string with_layers(const std::string& family, int layers) {
  return SmallModel{.type = family, .tied = family == "qwen2", .layers = layers}.config();
}

TEST(PipelineChunks, GradientsAreThoseOfOneProcess) {
  const std::string dropout = SmallModel{.type = "gpt2", .layers = 6, .dropout = 0.1}.config();
  for (const std::string& config : {with_layers("llama", 6), with_layers("qwen2", 6), dropout}) {
    for (const std::size_t count : {1, 3, 4, 6, 7}) {
      const RankLosses one = one_process(config, count);
      for (const PipelineShape& shape : {PipelineShape{2, 2}, PipelineShape{2, 3}, PipelineShape{3, 2}}) {
        const RankLosses stages = pipeline_of(config, shape, count);
        const std::string what = text_of(shape.stages, " stages of ", shape.chunks, " chunks, ", count);
        expect_near_sums(stages.sums, one.sums, what);
        expect_near_gradients(stages.gradients, one.gradients, what);
      }
    }
  }
}

// A chunk sums its gradients over micro-batches in the same order as a stage with the same layers.
TEST(PipelineChunks, BitsAreThoseOfOtherStages) {
  for (const auto& [family, config] : families()) {
    if (family == "qwen2") continue;  // the gradient of its head and embedding is one sum
    const RankLosses stages = pipeline_of(config, {4}, 6);
    const RankLosses chunks = pipeline_of(config, {2, 2}, 6);
    EXPECT_EQ(chunks.sums, stages.sums) << family;
    EXPECT_EQ(chunks.gradients, stages.gradients) << family;
    const RankLosses half_as_many = pipeline_of(config, {2}, 6);
    EXPECT_EQ(chunks.sums, half_as_many.sums) << family;
    EXPECT_EQ(chunks.gradients, half_as_many.gradients) << family;
  }
}

TEST(PipelineChunks, RecomputationAndAnotherRunChangeNoBit) {
  const std::string config = with_layers("qwen2", 8);
  for (const PipelineShape& shape : {PipelineShape{2, 4}, PipelineShape{4, 2}}) {
    const RankLosses first = pipeline_of(config, shape, 5);
    for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers, Recompute::kAutomatic}) {
      const RankLosses again = pipeline_of(config, shape, 5, {recompute});
      EXPECT_EQ(again.sums, first.sums);
      EXPECT_EQ(again.gradients, first.gradients);
    }
  }
}

// Memory of the first stage of a pipeline, and FLOPs of a micro-batch in its first chunk.
struct StageCost {
  std::size_t bytes = 0;
  double flops = 0;
};

StageCost cost_of_first_stage(const std::string& config, const PipelineShape& shape, const Kept& kept) {
  const StageModel model(model_of(config), 0, shape.stages, shape.chunks);
  Workspace workspace(std::make_shared<Arena>(cpu_device()));
  workspace.add_weights(kWeightStore, weight_types(model, DType::kF32));
  add_stage_training(workspace, model, training_options(model, kept), false);
  const std::int64_t slot = StageSlots(model).first(0);
  return {.bytes = workspace.memory().total(),
          .flops = workspace.program(in_slot(kStageForwardProgram, slot)).cost().flops +
                   workspace.program(in_slot(kTrainingProgram, slot)).cost().flops};
}

// Between everything kept and the whole forward pass computed twice a stage keeps what fits, with the same bits.
TEST(PipelineChunks, MemoryDecidesHowMuchIsKept) {
  const std::string config = with_layers("llama", 8);
  for (const PipelineShape& shape : {PipelineShape{2}, PipelineShape{2, 2}}) {
    const StageCost most = cost_of_first_stage(config, shape, {});
    const StageCost least = cost_of_first_stage(config, shape, {Recompute::kAutomatic, 0});
    ASSERT_LT(least.bytes, most.bytes);
    ASSERT_GT(least.flops, most.flops);
    const RankLosses whole = pipeline_of(config, shape, 5);
    std::set<double> between;  // FLOPs
    StageCost cost;
    for (std::size_t budget = 1 << 12; budget < (std::size_t{1} << 24); budget += budget / 4) {
      const Kept kept{Recompute::kAutomatic, budget};
      cost = cost_of_first_stage(config, shape, kept);
      EXPECT_LE(cost.bytes, most.bytes);
      if (cost.flops == least.flops || cost.flops == most.flops || !between.insert(cost.flops).second) continue;
      const RankLosses some = pipeline_of(config, shape, 5, kept);
      EXPECT_EQ(some.sums, whole.sums) << budget;
      EXPECT_EQ(some.gradients, whole.gradients) << budget;
    }
    EXPECT_EQ(cost.bytes, most.bytes);
    EXPECT_GE(between.size(), 3u);
  }
}

TEST(PipelineChunks, StagesHaveRangesInTurn) {
  const std::string config = with_layers("llama", 8);
  std::map<std::string, int> holders;
  for (int stage = 0; stage < 2; ++stage) {
    const StageModel model(model_of(config), stage, 2, 4);
    ASSERT_EQ(model.chunks(), 4);
    const std::vector<std::int64_t>& firsts = model.cut()->first_layers;
    for (const WeightSpec& spec : model.weights()) {
      ++holders[spec.name];
      EXPECT_TRUE(model.counts(spec.name));
      if (!spec.name.starts_with("layers.")) continue;
      const std::int64_t layer = std::stoll(spec.name.substr(std::string("layers.").size()));
      const auto range = std::ranges::upper_bound(firsts, layer) - firsts.begin() - 1;
      EXPECT_EQ(range % 2, stage) << spec.name;
    }
  }
  const std::unique_ptr<Model> whole = model_of(config);
  EXPECT_EQ(holders.size(), whole->weights().size());
  for (const auto& [name, count] : holders) EXPECT_EQ(count, 1) << name;
}

TEST(Pipeline, StagesHaveEachWeightOnceExceptThoseOfBothEnds) {
  for (const auto& [family, config] : families()) {
    for (const int size : {1, 2, 3, 4}) {
      std::map<std::string, int> holders;
      std::map<std::string, int> counted;
      for (int stage = 0; stage < size; ++stage) {
        const StageModel model(model_of(config), stage, size);
        for (const WeightSpec& spec : model.weights()) {
          ++holders[spec.name];
          counted[spec.name] += model.counts(spec.name) ? 1 : 0;
          if (spec.kind == WeightKind::embedding && family == "llama") {
            EXPECT_EQ(stage, 0) << spec.name;
          }
          if (spec.name == "norm" || spec.kind == WeightKind::head) {
            EXPECT_EQ(stage, size - 1) << spec.name;
          }
        }
      }
      const std::unique_ptr<Model> whole = model_of(config);
      EXPECT_EQ(holders.size(), whole->weights().size());
      for (const auto& [name, count] : holders) {
        const bool is_tied = has_tied_head(*whole) && name == whole->head();
        EXPECT_EQ(count, is_tied && size > 1 ? 2 : 1) << family << ", " << name;
        EXPECT_EQ(counted[name], 1) << family << ", " << name;
      }
    }
  }
}

class PipelineJob : public DividedJob {
 protected:
  PipelineJob()
      : DividedJob({.size_flag = "--pipeline_parallel_size", .micro_batches = 6, .max_steps = 12, .eval_steps = 6},
                   families()) {}

  // Expects that each value of the weights of two folders differs by at most 1e-5.
  void expect_near_values(const std::string& output, const std::string& one) const {
    const NamedValues all = weight_values(output);
    for (const auto& [name, expected] : weight_values(one)) {
      const std::vector<float>& values = all.at(name);
      ASSERT_EQ(values.size(), expected.size()) << output << ", " << name;
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], expected[i], 1e-5) << output << ", " << name << ", element " << i;
      }
    }
  }
};

TEST_F(PipelineJob, PretrainingAndFineTuningHaveTheLossesOfOneProcess) {
  for (const auto& [family, config] : families()) {
    run(family, family + " one", 1, 1);
    tune(family + " one", family + " tuned", 1, 1);
    for (const auto& [data, stages] : std::vector<std::pair<int, int>>{{1, 2}, {1, 4}, {2, 2}}) {
      const std::string output = text_of(family, " ", data, " x ", stages);
      run(family, output, data, stages);
      expect_near(output, family + " one", joined(kTrained, {"eval_entropy"}));
      expect_near_values(output, family + " one");
      tune(family + " one", output + " tuned", data, stages);
      expect_near(output + " tuned", family + " tuned", kTuned);
      expect_near_values(output + " tuned", family + " tuned");
    }
  }
}

TEST_F(PipelineJob, TheSameJobHasTheSameBits) {
  for (const int data : {1, 2}) {
    const std::string name = std::to_string(data);
    run("qwen2", name + " a", data, 2);
    run("qwen2", name + " b", data, 2, {"--gradient_checkpointing", "true"});
    run("qwen2", name + " c", data, 2, {"--gradient_checkpointing", "false"});
    for (const char* other : {" b", " c"}) {
      expect_same_bits(name + other, name + " a");
      EXPECT_EQ(series(name + other, "grad_norm"), series(name + " a", "grad_norm"));
    }
  }
}

TEST_F(PipelineJob, ARunContinuesBitForBit) {
  const std::vector<Flags> kinds{{},
                                 {"--zero_stage", "1"},
                                 {"--torch_dtype", "bfloat16"},
                                 {"--torch_dtype", "bfloat16", "--optim", "adamw_8bit", "--gradient_dtype", "bfloat16"},
                                 {"--optim", "muon"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    expect_resumes("gpt2", std::to_string(kind), kind < 2 ? 2 : 1, 2, kinds[kind]);
  }
  EXPECT_EQ(weights("1 whole"), weights("0 whole")) << "divided states change bits";
}

TEST_F(PipelineJob, ARunContinuesOnAnotherLayout) {
  for (const auto& [name, config] : families()) {
    run(name, name, 1, 1);
    const auto continued = [&](const std::string& from, int step, const std::string& to, int data, int stages,
                               const Flags& more = {}) {
      resume(name, from, step, to, data, stages, more);
      expect_near_end(to, name, step);
    };
    continued(name, 4, name + " a", 1, 2);
    continued(name + " a", 8, name + " b", 1, 4);
    continued(name, 4, name + " c", 2, 2, {"--zero_stage", "1"});
    continued(name + " c", 8, name + " d", 1, 1);
    continued(name + " c", 8, name + " e", 2, 1);
  }
}

// Each process allocates what it plans to the byte, or stops.
TEST_F(PipelineJob, ThePlanHasEachStage) {
  const Environment one_thread(kOneThread);
  for (const int stages : {2, 4}) {
    const Flags command = arguments("llama", "planned " + std::to_string(stages), 1, stages, {"--max_steps", "1"});
    const std::string plan = plan_of(command);
    std::vector<double> each;
    for (const Words& line : planned_lines(plan, "stage ")) each.push_back(planned_bytes(line));
    ASSERT_EQ(each.size(), static_cast<std::size_t>(stages)) << plan;
    const std::vector<Words> total = planned_lines(plan, "total");
    ASSERT_EQ(total.size(), 1u) << plan;
    EXPECT_THAT(each, ::testing::Contains(planned_bytes(total[0])));
    EXPECT_EQ(planned_lines(plan, "kept for micro-batches").size(), 1u) << plan;
    finish(command);
  }
}

const Flags kTwoChunks{"--virtual_pipeline_parallel_size", "2"};

TEST_F(PipelineJob, ChunksHaveTheLossesOfOneProcess) {
  for (const auto& [family, config] : families()) {
    run(family, family + " one", 1, 1);
    tune(family + " one", family + " tuned", 1, 1);
    for (const int data : {1, 2}) {
      const std::string output = text_of(family, " chunks ", data);
      run(family, output, data, 2, kTwoChunks);
      expect_near(output, family + " one", joined(kTrained, {"eval_entropy"}));
      expect_near_values(output, family + " one");
      tune(family + " one", output + " tuned", data, 2, kTwoChunks);
      expect_near(output + " tuned", family + " tuned", kTuned);
      expect_near_values(output + " tuned", family + " tuned");
    }
  }
}

TEST_F(PipelineJob, ChunksRepeatAndContinueBitForBit) {
  run("qwen2", "a", 1, 2, kTwoChunks);
  run("qwen2", "b", 1, 2, joined(kTwoChunks, {"--gradient_checkpointing", "true"}));
  expect_same_bits("b", "a");
  EXPECT_EQ(series("b", "grad_norm"), series("a", "grad_norm"));
  const std::vector<Flags> kinds{
      {},
      {"--zero_stage", "1"},
      {"--zero_stage", "3"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_8bit", "--gradient_dtype", "bfloat16"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    expect_resumes("gpt2", std::to_string(kind), kind < 3 ? 2 : 1, 2, joined(kTwoChunks, kinds[kind]));
  }
  EXPECT_EQ(weights("1 whole"), weights("0 whole")) << "divided states change bits";
}

TEST_F(PipelineJob, ChunksContinueOnAnotherLayout) {
  for (const auto& [name, config] : families()) {
    run(name, name, 1, 1);
    const auto continued = [&](const std::string& from, int step, const std::string& to, int data, int stages,
                               const Flags& more = {}) {
      resume(name, from, step, to, data, stages, more);
      expect_near_end(to, name, step);
    };
    continued(name, 4, name + " chunks", 1, 2, kTwoChunks);
    continued(name + " chunks", 8, name + " none", 1, 2);
    continued(name + " none", 8, name + " again", 1, 2, kTwoChunks);
    continued(name + " chunks", 8, name + " one", 1, 1);
  }
}

// Each process allocates what it plans to the byte, or stops.
TEST_F(PipelineJob, ThePlanHasTheRangesOfEachStage) {
  const Environment one_thread(kOneThread);
  for (const char* recomputed : {"true", "false"}) {
    const Flags command = arguments("llama", text_of("planned ", recomputed), 1, 2,
                                    joined(kTwoChunks, {"--max_steps", "1", "--gradient_checkpointing", recomputed}));
    const std::string plan = plan_of(command);
    EXPECT_THAT(plan, HasSubstr("stage 0: layers 0 to 0 and 2 to 2, memory"));
    EXPECT_THAT(plan, HasSubstr("stage 1: layers 1 to 1 and 3 to 3, memory"));
    finish(command);
  }
}

TEST_F(PipelineJob, ChunksThatAreNoneAreRefused) {
  const auto with = [&](int stages, const Flags& more) { return refusal(arguments("llama", "none", 1, stages, more)); };
  EXPECT_THAT(with(1, kTwoChunks), HasSubstr("virtual_pipeline_parallel_size: is 2, but pipeline_parallel_size is 1"));
  EXPECT_THAT(with(4, kTwoChunks), HasSubstr("virtual_pipeline_parallel_size: is 2 with pipeline_parallel_size 4, but "
                                             "the model has 4 layers"));
}

TEST_F(PipelineJob, WhatIsMissingIsRefused) {
  const auto with = [&](int stages, const Flags& more) { return refusal(arguments("llama", "none", 1, stages, more)); };
  EXPECT_THAT(with(2, {"--num_processes", "3"}),
              HasSubstr("pipeline_parallel_size: is 2, which does not divide num_processes 3"));
  EXPECT_THAT(with(6, {}), HasSubstr("pipeline_parallel_size: is 6, but the model has 4 layers"));
  EXPECT_THAT(with(2, {"--activation_offloading", "true"}),
              HasSubstr("pipeline_parallel_size: is 2, but activation_offloading"));
  EXPECT_THAT(with(2, {"--benchmarks", "gsm8k"}),
              HasSubstr("benchmarks: need whole weights on the device, which pipeline_parallel_size divides"));
  EXPECT_THAT(with(2, {"--fp8", "true"}), HasSubstr("fp8: is for weights of bfloat16, these are f32"));
  run("llama", "model", 1, 1, {"--max_steps", "1"});
  EXPECT_THAT(refusal(reinforcement("model", "g", {"--num_processes", "2", "--pipeline_parallel_size", "2"})),
              HasSubstr("pipeline_parallel_size: is 2; hone grpo divides weights by tensor_parallel_size only"));
}

}  // namespace
}  // namespace hone::test::pipeline
