// Tests of pipelines whose stages are divided again: gradients and losses next to those of one process, on CPUs.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "core/random.h"
#include "core/strings.h"
#include "data/context_share.h"
#include "job/pipeline_products.h"
#include "model/lora.h"
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
#include "train/setup.h"
#include "train/stage_programs.h"

namespace hone::test::products {
namespace {

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

// A mesh of ranks and what each of them computes with.
struct Divided {
  JobShape shape;
  int data = 1;       // readers x context_size
  bool rows = false;  // sequence parallelism in tensor groups
  Recompute recompute = Recompute::kNone;

  [[nodiscard]] int size() const { return shape.tensor_size * shape.pipeline_size * data; }
  [[nodiscard]] std::string text() const {
    return text_of("tensor ", shape.tensor_size, rows ? " by rows" : "", ", stages ", shape.pipeline_size, ", context ",
                   shape.context_size, ", experts ", shape.expert_size, ", data ", data);
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
  options.sequence_parallel = division.rows;
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
  add_stage_training(workspace, model, programs, job.data_size() > 1, expert_gradients(options, model));
  add_stage_evaluation(workspace, model, programs);
  const TensorStore whole = random_weights_of(model.whole());
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
  const TensorStore weights = random_weights_of(*model);
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

// Stages send each other the rows of a rank.
TEST(PipelineTensor, GradientsOfRowsAreThoseOfOneProcess) {
  for (const auto& [family, config] : families()) {
    expect_near_one(family, [&] { return model_of(config); },
                    {{.shape = {.tensor_size = 2, .pipeline_size = 2}, .rows = true},
                     {.shape = {.tensor_size = 2, .pipeline_size = 2}, .data = 2, .rows = true},
                     {.shape = {.tensor_size = 4, .pipeline_size = 2}, .rows = true},
                     {.shape = {.tensor_size = 2, .pipeline_size = 4}, .rows = true},
                     {.shape = {.tensor_size = 2, .pipeline_size = 2, .context_size = 2}, .data = 2, .rows = true}});
  }
}

TEST(PipelineTensor, RecomputationAndAnotherRunChangeNoBit) {
  for (const bool rows : {false, true}) {
    expect_no_bit_changes([] { return model_of(families().at("qwen2")); },
                          {.shape = {.tensor_size = 2, .pipeline_size = 2}, .data = 2, .rows = rows});
  }
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

// Adapters of linear layers; and of all kinds, with trained copies of the embedding and of the head that is the same.
std::unique_ptr<Model> with_adapter_of(const std::string& family, bool of_all_kinds) {
  LoraConfig config{.r = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj", "down_proj"}};
  if (of_all_kinds) {
    config.modules_to_save = {"embed_tokens", "lm_head"};
    config.bias = LoraBias::kAll;
    config.dora = true;
  }
  return std::make_unique<LoraModel>(model_of(families().at(family)), std::move(config));
}

TEST(PipelineAdapter, GradientsAreThoseOfOneProcess) {
  for (const char* family : {"llama", "qwen2"}) {
    for (const bool of_all_kinds : {false, true}) {
      expect_near_one(family, [&] { return with_adapter_of(family, of_all_kinds); },
                      {{.shape = {.pipeline_size = 2}},
                       {.shape = {.pipeline_size = 4}},
                       {.shape = {.pipeline_size = 2}, .data = 2},
                       {.shape = {.pipeline_size = 2, .context_size = 2}, .data = 2},
                       {.shape = {.tensor_size = 2, .pipeline_size = 2}, .data = 2},
                       {.shape = {.tensor_size = 4, .pipeline_size = 2}},
                       {.shape = {.tensor_size = 2, .pipeline_size = 2, .context_size = 2}, .data = 2}});
    }
  }
}

TEST(PipelineAdapter, RecomputationAndAnotherRunChangeNoBit) {
  expect_no_bit_changes([] { return with_adapter_of("qwen2", true); }, {.shape = {.pipeline_size = 4}});
}

std::unique_ptr<Model> mixture_of(const std::string& family) {
  std::unique_ptr<Model> model = model_of(mixtures().at(family));
  if (family == "deepseek_v3") model->prepare_training({.aux_loss_alpha = 0.01, .bias_update_speed = 0.001});
  return model;
}

TEST(PipelineExperts, GradientsAreThoseOfOneProcess) {
  for (const auto& [family, config] : mixtures()) {
    expect_near_one(family, [&] { return mixture_of(family); },
                    {{.shape = {.pipeline_size = 2}},
                     {.shape = {.pipeline_size = 4}},
                     {.shape = {.pipeline_size = 2}, .data = 2},
                     {.shape = {.pipeline_size = 2, .expert_size = 2}, .data = 2},
                     {.shape = {.pipeline_size = 2, .expert_size = 4}, .data = 4},
                     {.shape = {.pipeline_size = 2, .expert_size = 2}, .data = 4},
                     {.shape = {.pipeline_size = 4, .expert_size = 2}, .data = 2},
                     {.shape = {.tensor_size = 2, .pipeline_size = 2}, .data = 2},
                     {.shape = {.tensor_size = 2, .pipeline_size = 2, .expert_size = 2}, .data = 2},
                     {.shape = {.tensor_size = 2, .pipeline_size = 2}, .rows = true},
                     {.shape = {.tensor_size = 2, .pipeline_size = 2, .expert_size = 2}, .data = 2, .rows = true}});
  }
}

TEST(PipelineExperts, TokensOfMixturesAreDividedToo) {
  for (const char* family : {"mixtral", "deepseek_v3"}) {
    expect_near_one(family, [&] { return model_of(mixtures().at(family)); },
                    {{.shape = {.pipeline_size = 2, .context_size = 2}, .data = 2},
                     {.shape = {.pipeline_size = 2, .context_size = 2}, .data = 4}});
  }
}

TEST(PipelineExperts, AnAdapterOfAMixtureHasTheGradientsOfOneProcess) {
  const auto make = [] {
    return std::make_unique<LoraModel>(model_of(mixtures().at("qwen3_moe")),
                                       LoraConfig{.r = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj"}});
  };
  expect_near_one("adapter", make, {{.shape = {.pipeline_size = 4}}, {.shape = {.pipeline_size = 2}, .data = 2}});
}

// The layer for multi-token prediction reads the embedding, which the first and the last stage then have.
TEST(PipelineExperts, PredictionOfSeveralTokensHasTheGradientsOfOneProcess) {
  const auto make = [] {
    std::unique_ptr<Model> model = model_of(mixtures().at("deepseek_v3"));
    model->prepare_training({.bias_update_speed = 0.001, .mtp_loss_weight = 0.3});
    return model;
  };
  EXPECT_TRUE(make()->predicts_further());
  expect_near_one("prediction", make,
                  {{.shape = {.pipeline_size = 2}},
                   {.shape = {.pipeline_size = 5}},
                   {.shape = {.pipeline_size = 2, .context_size = 2}, .data = 2},
                   {.shape = {.pipeline_size = 2, .expert_size = 2}, .data = 4},
                   {.shape = {.tensor_size = 2, .pipeline_size = 2}, .rows = true}});
}

TEST(PipelineExperts, RecomputationAndAnotherRunChangeNoBit) {
  expect_no_bit_changes([] { return mixture_of("deepseek_v3"); }, {.shape = {.pipeline_size = 2}});
  expect_no_bit_changes([] { return mixture_of("deepseek_v3"); },
                        {.shape = {.tensor_size = 2, .pipeline_size = 2}, .rows = true});
  expect_no_bit_changes([] { return mixture_of("qwen3_moe"); },
                        {.shape = {.pipeline_size = 2, .expert_size = 2}, .data = 4});
}

}  // namespace
}  // namespace hone::test::products
