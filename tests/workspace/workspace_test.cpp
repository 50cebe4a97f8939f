#include "workspace/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "engine/engine.h"
#include "support/device.h"
#include "support/models.h"
#include "train/loss_program.h"
#include "train/optimizer.h"
#include "train/setup.h"

namespace hone::test {
namespace {

const StoreSpec* find(const Workspace& workspace, std::string_view name) {
  const auto found = std::ranges::find(workspace.stores(), name, &StoreSpec::name);
  return found == workspace.stores().end() ? nullptr : &*found;
}

// A run that trains and generates with the same weights.
struct SmallRun {
  explicit SmallRun(bool leases) : workspace(test_device().kind()) {
    const Capacity capacity = capacity_of(fixture.batch());
    workspace.add_weights(kWeightStore, fixture.weights.tensors());
    add_update(workspace, *fixture.model, DType::kF32, {});
    add_generation(workspace, *fixture.model, DType::kF32, engine_options);
    workspace.add(kTrainingProgram,
                  trace_training(*fixture.model, {.capacity = capacity, .compile = {.device = test_device().kind()}}),
                  training_use());
    if (leases) workspace.share_training_memory_with_rollouts();
  }

  // Alternates between generation and training. Returns all log-probabilities, losses and gradient norms.
  std::vector<double> run() {
    workspace.provide(kWeightStore, fixture.weights.view());
    workspace.allocate(test_device());
    Optimizer optimizer(workspace, *fixture.model, {});
    const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
    Engine engine(*fixture.model, tokenizer, workspace, engine_options);
    const HostBatch batch = fixture.batch();
    const Request request{{5, 9, 20, 13}, {.temperature = 1.0, .max_tokens = 24}};
    std::vector<double> figures;
    for (int turn = 0; turn < 4; ++turn) {
      workspace.enter(Region::kRollout);
      const std::vector<Completion> completions = engine.generate({&request, 1});
      figures.insert(figures.end(), completions[0].logps.begin(), completions[0].logps.end());
      workspace.enter(Region::kTrain);
      const double weight = 1.0 / static_cast<double>(batch.target_tokens);
      figures.push_back(run_loss(workspace.executable(kTrainingProgram), batch, weight).loss);
      figures.push_back(optimizer.update(1e-3, 1.0).grad_norm);
    }
    return figures;
  }

  FixtureModel fixture{"qwen3"};
  EngineOptions engine_options{.max_model_len = 48, .max_num_seqs = 4, .max_batch_tokens = 32};
  Workspace workspace;
};

TEST(Workspace, StoresFollowFromWhatProgramsBind) {
  const SmallRun run(false);
  ASSERT_NE(find(run.workspace, kGradientStore), nullptr);
  EXPECT_EQ(find(run.workspace, kGradientStore)->region, Region::kTrain);
  EXPECT_EQ(find(run.workspace, kGradientStore)->tensors.size(), run.fixture.model->weights().size());
  ASSERT_NE(find(run.workspace, kOptimizerStore), nullptr);
  EXPECT_EQ(find(run.workspace, kOptimizerStore)->saved_as, "optimizer.");
  const auto pages = std::ranges::find(run.workspace.stores(), Region::kRollout, &StoreSpec::region);
  ASSERT_NE(pages, run.workspace.stores().end());
  // The programs of all capacities share one state for the keys and one for the values of each layer, and the sampled
  // tokens.
  EXPECT_EQ(pages->tensors.size(), static_cast<std::size_t>(2 * run.fixture.model->shape().num_hidden_layers + 1));
  EXPECT_GT(run.workspace.program_names().size(), 3u);
}

TEST(Workspace, IsAllocatedToTheByte) {
  SmallRun run(false);
  const std::size_t before = test_device().allocated_bytes();
  (void)run.run();
  const MemoryBreakdown memory = run.workspace.memory();
  EXPECT_EQ(test_device().allocated_bytes() - before, memory.total() - memory.weights);
  EXPECT_EQ(memory.leased, 0u);
}

// The programs of the engine have inputs of the size of the largest once, all others their own.
TEST(Workspace, ProgramsOfAnEngineShareTheirInputs) {
  const SmallRun run(false);
  std::size_t own = 0;
  std::size_t engine = 0;       // those of the largest program
  std::size_t all_engines = 0;  // those of all, if each had its own
  for (const std::string& name : run.workspace.program_names()) {
    const std::size_t inputs = plan_memory(run.workspace.program(name), test_device().kind()).inputs;
    const bool generates = name.starts_with("generation of ");
    own += generates ? 0 : inputs;
    engine = std::max(engine, generates ? inputs : 0);
    all_engines += generates ? inputs : 0;
  }
  EXPECT_EQ(run.workspace.memory().inputs, own + engine);
  EXPECT_LT(engine, all_engines);
}

// With a lease, the KV cache and activations of rollouts reuse the memory of gradients and training activations. The
// run takes less memory and gives the same bits. Recorded launches stay valid because no address changes.
TEST(Workspace, ALeaseSavesMemoryAndChangesNoBit) {
  SmallRun apart(false);
  SmallRun leased(true);
  const std::size_t before = test_device().allocated_bytes();
  const std::vector<double> figures = leased.run();
  const MemoryBreakdown memory = leased.workspace.memory();
  EXPECT_EQ(test_device().allocated_bytes() - before, memory.total() - memory.weights);
  EXPECT_GE(memory.leased, std::min(memory.kv_cache, memory.gradients));
  EXPECT_EQ(memory.total() + memory.leased, apart.workspace.memory().total());
  EXPECT_EQ(apart.run(), figures);
}

TEST(Workspace, RefusesWhatContradictsItself) {
  SmallRun run(false);
  EXPECT_THROW(run.workspace.add_weights(kWeightStore, {}), Defect);
  EXPECT_THROW(run.workspace.add(kUpdateProgram, Program(), {}), Defect);
  Program other;
  (void)other.weight("no such weight", {DType::kF32, {4}});
  EXPECT_THROW(run.workspace.add("other", std::move(other), {}), Defect);
  Program wide;
  (void)wide.gradient(run.fixture.weights.tensors().front().name, {DType::kF64, {4}});
  EXPECT_THROW(run.workspace.add("wide", std::move(wide), {}), Defect);
}

}  // namespace
}  // namespace hone::test
