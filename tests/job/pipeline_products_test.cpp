// Tests of pipelines whose stages are divided again: gradients, losses and runs next to those of one process, on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "core/strings.h"
#include "data/context_share.h"
#include "job/job_fixture.h"
#include "model/stage_model.h"
#include "model/tensor_parallel_model.h"
#include "model/weight_layout.h"
#include "model/weights.h"
#include "ops/registry.h"
#include "support/models.h"
#include "support/rank_threads.h"
#include "train/launch.h"
#include "train/pipeline.h"
#include "train/run_collectives.h"
#include "train/stage_programs.h"

namespace hone::test::products {
namespace {

using ::testing::HasSubstr;

// Configurations of models with four layers: with a tied head, which the first and the last stage have both, with
// biases, and with a vocabulary that two ranks do not divide.
Configs families() {
  return {{"llama", SmallModel{.type = "llama", .layers = 4}.config()},
          {"llama odd", SmallModel{.type = "llama", .tied = true, .layers = 4, .vocabulary = 309}.config()},
          {"qwen2", SmallModel{.type = "qwen2", .tied = true, .layers = 4}.config()},
          {"gpt2", SmallModel{.type = "gpt2", .layers = 4}.config()}};
}

constexpr std::size_t kMicroBatches = 4;  // of all readers
constexpr Capacity kCapacity{96, 4};
constexpr double kWeight = 1e-2;

std::vector<HostBatch> micro_batches() {
  std::vector<HostBatch> batches;
  for (int b = 0; b < static_cast<int>(kMicroBatches); ++b) {
    batches.push_back(
        batch_of(random_documents(static_cast<std::uint64_t>(b) + 3, std::vector{17 + b, 5 + b, 30}, 308)));
  }
  return batches;
}

// The micro-batches that a rank computes.
std::vector<HostBatch> batches_of(const hone::Job& job) {
  std::vector<HostBatch> all = micro_batches();
  std::vector<HostBatch> own;
  for (std::size_t b = 0; b < all.size(); ++b) {
    if (static_cast<int>(b) % job.readers() != job.reader()) continue;
    own.push_back(job.context_size() > 1 ? context_share(all[b], job.context_rank(), job.context_size())
                                         : std::move(all[b]));
  }
  return own;
}

std::vector<double> numbers_of(const LossSums& sums) { return {sums.loss, sums.entropy, sums.hits}; }

using MakeModel = std::function<std::unique_ptr<Model>()>;

// A mesh of ranks and what each of them computes with.
struct Divided {
  JobShape shape;
  int data = 1;  // readers x context_size
  Recompute recompute = Recompute::kNone;

  [[nodiscard]] int size() const { return shape.tensor_size * shape.pipeline_size * data; }
  [[nodiscard]] std::string text() const {
    return text_of("tensor ", shape.tensor_size, ", stages ", shape.pipeline_size, ", context ", shape.context_size,
                   ", experts ", shape.expert_size, ", data ", data);
  }
};

// The sums of a rank, and its gradients, which are summed over the data group.
struct RankResult {
  std::unique_ptr<Model> model;
  std::vector<double> sums;
  NamedValues gradients;
};

RankResult run_rank(const MakeModel& make, const Divided& division, Peers& peers) {
  TrainingOptions options;
  options.num_processes = division.size();
  options.job_rank = peers.rank();
  options.tensor_parallel_size = division.shape.tensor_size;
  options.pipeline_parallel_size = division.shape.pipeline_size;
  options.expert_parallel_size = division.shape.expert_size;
  options.context_parallel_size = division.shape.context_size;
  const hone::Job job(&peers, division.shape);
  const RunCollectives collectives(cpu_device(), job);
  RankResult result{.model = divided_model(options, make()), .sums = {}, .gradients = {}};
  const Model& model = *result.model;
  const Model& all = of_all_stages(model);
  Workspace workspace(std::make_shared<Arena>(cpu_device()));
  workspace.add_weights(kWeightStore, weight_types(model, DType::kF32));
  LossProgramOptions programs{.capacity = kCapacity, .context_size = division.shape.context_size};
  programs.compile.stage = model.stage()->cut();
  programs.compile.recompute = division.recompute;
  programs.compile.activation_budget = std::size_t{1} << 30;
  add_stage_training(workspace, model, programs, job.data_size() > 1);
  add_stage_evaluation(workspace, model, programs);
  const TensorStore whole = random_weights(model.whole(), 5, DType::kF32, cpu_device());
  TensorStore weights(cpu_device(), weight_types(model, DType::kF32));
  for (std::size_t i = 0; i < all.weights().size(); ++i) {
    const std::string& name = all.weights()[i].name;
    if (weights.contains(name)) weights.upload(name, part_of(all, i, whole));
  }
  workspace.provide(kWeightStore, std::move(weights));
  workspace.allocate(cpu_device());
  Pipeline pipeline(workspace, *model.stage(), job);
  result.sums = numbers_of(pipeline.train(batches_of(job), kWeight, {.seed = 7, .step = 3, .first = 0}));
  LossSums evaluated;
  pipeline.evaluate(batches_of(job), evaluated);
  result.sums.push_back(evaluated.loss);
  for (const WeightSpec& spec : model.weights()) {
    if (spec.trainable) result.gradients[spec.name] = floats_of(workspace.store(kGradientStore).download(spec.name));
  }
  return result;
}

// The sums over all tensor groups of the last stage, and whole gradients.
RankLosses run_mesh(const MakeModel& make, const Divided& division) {
  register_operations();
  std::vector<RankResult> ranks(static_cast<std::size_t>(division.size()));
  run_ranks(division.size(), [&](Collective& job) {
    ranks[static_cast<std::size_t>(job.rank())] = run_rank(make, division, job.peers());
  });
  RankLosses all{.sums = std::vector<double>(4, 0.0), .gradients = {}};
  const std::unique_ptr<Model> whole = make();
  for (int rank = 0; rank < division.size(); ++rank) {
    const RankResult& own = ranks[static_cast<std::size_t>(rank)];
    const Mesh mesh(rank, division.size(), division.shape);
    if (mesh.is_last_stage() && mesh.tensor_rank() == 0) {
      for (std::size_t i = 0; i < own.sums.size(); ++i) all.sums[i] += own.sums[i];
    }
    if (!mesh.is_last_stage()) {
      EXPECT_EQ(own.sums, std::vector<double>(4, 0.0)) << "a stage without the head has a loss";
    }
    for (const WeightSpec& part : own.model->weights()) {
      if (!part.trainable) continue;
      const WeightSpec& spec = whole->weights()[whole_index(*own.model, part.name)];
      std::vector<float>& values = all.gradients[spec.name];
      const bool is_new = values.empty();
      values.resize(static_cast<std::size_t>(spec.shape[0] * row_elements(spec)));
      const std::vector<float> before = values;
      put_part(part, spec, sizeof(float), std::as_bytes(std::span(own.gradients.at(part.name))),
               std::as_writable_bytes(std::span(values)));
      if (!is_new && !is_divided(part)) {
        EXPECT_EQ(values, before) << division.text() << ": " << spec.name << " of rank " << rank << " has other bits";
      }
    }
  }
  return all;
}

RankLosses one_process(const MakeModel& make) {
  register_operations();
  const std::unique_ptr<Model> model = make();
  const TensorStore weights = random_weights(*model, 5, DType::kF32, cpu_device());
  TensorStore gradients(cpu_device(), weight_types(*model, DType::kF32));
  Executable executable(trace_training(*model, {.capacity = kCapacity}), std::make_shared<Arena>(cpu_device()),
                        {.weights = &weights, .gradients = &gradients});
  LossLaunches launches(executable, kMicroBatches, 7, 3, 0);
  for (const HostBatch& batch : micro_batches()) launches.launch(batch, kWeight);
  RankLosses results{.sums = numbers_of(launches.sums()), .gradients = {}};
  Executable evaluation(trace_evaluation(*model, {.capacity = kCapacity}), std::make_shared<Arena>(cpu_device()),
                        {.weights = &weights});
  LossLaunches evaluated(evaluation, kMicroBatches);
  for (const HostBatch& batch : micro_batches()) evaluated.launch(batch, 1.0);
  results.sums.push_back(evaluated.sums().loss);
  for (const WeightSpec& spec : model->weights()) {
    if (spec.trainable) results.gradients[spec.name] = floats_of(gradients.download(spec.name));
  }
  return results;
}

void expect_near_one(const std::string& name, const MakeModel& make, const std::vector<Divided>& meshes) {
  const RankLosses one = one_process(make);
  for (const Divided& division : meshes) {
    const RankLosses mesh = run_mesh(make, division);
    expect_near_sums(mesh.sums, one.sums, text_of(name, ", ", division.text()));
    expect_near_gradients(mesh.gradients, one.gradients, text_of(name, ", ", division.text()));
  }
}

void expect_no_bit_changes(const MakeModel& make, Divided division) {
  const RankLosses first = run_mesh(make, division);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers, Recompute::kAutomatic}) {
    division.recompute = recompute;
    const RankLosses again = run_mesh(make, division);
    EXPECT_EQ(again.sums, first.sums) << division.text();
    EXPECT_EQ(again.gradients, first.gradients) << division.text();
  }
}

TEST(PipelineTensor, GradientsAreThoseOfOneProcess) {
  for (const auto& [family, config] : families()) {
    expect_near_one(family, [&] { return model_of(config); },
                    {{.shape = {.tensor_size = 2, .pipeline_size = 2}},
                     {.shape = {.tensor_size = 2, .pipeline_size = 2}, .data = 2},
                     {.shape = {.tensor_size = 4, .pipeline_size = 2}},
                     {.shape = {.tensor_size = 2, .pipeline_size = 4}}});
  }
}

TEST(PipelineTensor, RecomputationAndAnotherRunChangeNoBit) {
  expect_no_bit_changes([] { return model_of(families().at("qwen2")); },
                        {.shape = {.tensor_size = 2, .pipeline_size = 2}, .data = 2});
}

TEST(PipelineContext, GradientsAreThoseOfOneProcess) {
  for (const auto& [family, config] : families()) {
    expect_near_one(family, [&] { return model_of(config); },
                    {{.shape = {.pipeline_size = 2, .context_size = 2}, .data = 2},
                     {.shape = {.pipeline_size = 2, .context_size = 2}, .data = 4},
                     {.shape = {.pipeline_size = 4, .context_size = 2}, .data = 2},
                     {.shape = {.tensor_size = 2, .pipeline_size = 2, .context_size = 2}, .data = 2}});
  }
}

TEST(PipelineContext, RecomputationAndAnotherRunChangeNoBit) {
  expect_no_bit_changes([] { return model_of(families().at("qwen2")); },
                        {.shape = {.pipeline_size = 2, .context_size = 2}, .data = 4});
}

// Runs of whole processes. `size` is the number of stages; `more` gives the other groups and num_processes.
class ProductJob : public DividedJob {
 protected:
  explicit ProductJob(Flags pretraining = {})
      : DividedJob({.size_flag = "--pipeline_parallel_size",
                    .max_steps = 8,
                    .eval_steps = 4,
                    .pretraining = std::move(pretraining)},
                   families()) {}

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

}  // namespace
}  // namespace hone::test::products
