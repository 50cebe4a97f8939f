// Checks the search of layouts: what it lists is what runs accept, with the memory that they take.
#include "planner/layout_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "model/registry.h"
#include "planner/layout_problem.h"
#include "support/miniature.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/launch.h"

namespace hone::test {
namespace {
using testing::HasSubstr;

class LayoutSearch : public testing::Test {
 protected:
  void SetUp() override {
    set_quiet(true);
    write_miniature(folder_.path());
    Json config = read_json(path("model.json"));
    config["num_key_value_heads"] = 2;
    config["num_hidden_layers"] = 4;
    write_file(path("divisible.json"), config.dump());
    Json experts = read_json(fixture("models") / "qwen3_moe/config.json");
    experts["num_experts"] = 8;
    write_json(path("experts.json"), experts);
    // One document, so that each sequence has one, as the plan then assumes.
    std::string text;
    for (int i = 0; i < 400; ++i) text += "the sum of 1 and 2 is 3, ";
    write_file(path("data/long.jsonl"), Json{{"text", text}}.dump() + "\n");
  }
  void TearDown() override { set_quiet(false); }

  [[nodiscard]] std::string path(const std::string& relative) const { return (folder_.path() / relative).string(); }

  [[nodiscard]] PretrainOptions pretrain(const char* model) const {
    PretrainOptions options;
    options.model_config_path = path(model);
    options.tokenizer_name_or_path = path("tokenizer");
    options.dataset_name = path("data/long.jsonl");
    options.output_dir = path("out");
    options.block_size = 48;
    options.max_steps = 2;
    options.num_processes = 4;
    options.per_device_train_batch_size = 2;
    return options;
  }

  [[nodiscard]] static ModelSketch sketch_of(const PretrainOptions& options) {
    const LanguageRun run = prepare_pretrain(options);
    return {family_registry().create(run.model->whole().config()), run.dtype};
  }

  [[nodiscard]] static LayoutProblem problem_of(const PretrainOptions& options, const OptionInput& input = {}) {
    PretrainOptions whole = options;
    whole.num_processes = 1;
    LayoutProblem problem = layout_problem(options, input, sketch_of(whole), job_devices(options));
    problem.sequence.documents = 1;
    return problem;
  }

  TemporaryDirectory folder_;
};

// A model that cannot divide its vocabulary says so at a run, not while it is only tried.
TEST_F(LayoutSearch, SaysNothingOfModelsThatItTries) {
  Json config = read_json(path("divisible.json"));
  config["vocab_size"] = 401;
  write_file(path("odd.json"), config.dump());
  const LayoutProblem problem = problem_of(pretrain("odd.json"));
  set_quiet(false);
  testing::internal::CaptureStderr();
  const LayoutRanking ranking = rank_layouts(problem, 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  const auto in_tensor_groups = [](const LayoutPlan& plan) { return plan.layout.tensor_parallel_size > 1; };
  EXPECT_TRUE(std::ranges::any_of(ranking.layouts, in_tensor_groups));
}

// Each layout that is listed prepares and plans as a run, with the same bytes.
TEST_F(LayoutSearch, ListsWhatRunsAcceptWithTheirMemory) {
  std::set<std::string> kinds;
  for (const char* model : {"divisible.json", "experts.json"}) {
    const PretrainOptions options = pretrain(model);
    const LayoutRanking ranking = rank_layouts(problem_of(options), 0);
    EXPECT_GE(ranking.layouts.size(), 10u);
    for (const LayoutPlan& plan : ranking.layouts) {
      PretrainOptions run = options;
      apply(plan.layout, run);
      check_options(run, {});
      check_mesh(run);
      EXPECT_EQ(plan_run(prepare_pretrain(run)).memory.total(), plan.bytes) << to_text(plan.layout);
      EXPECT_EQ(run.batches_per_step() * run.per_device_train_batch_size, 8) << to_text(plan.layout);
      EXPECT_GT(plan.time.total(), 0) << to_text(plan.layout);
      if (plan.layout.tensor_parallel_size > 1) kinds.insert("tensor");
      if (plan.layout.sequence_parallel) kinds.insert("sequence");
      if (plan.layout.sequence_parallel && plan.layout.expert_parallel_size > 1) kinds.insert("expert, sequence");
      if (plan.layout.sequence_parallel && plan.layout.pipeline_parallel_size > 1) kinds.insert("pipeline, sequence");
      const bool has_experts = std::string_view(model) == "experts.json";
      if (has_experts && plan.layout.tensor_parallel_size > 1) kinds.insert("experts in tensor groups");
      if (plan.layout.expert_parallel_size > 1 && plan.layout.tensor_parallel_size > 1) kinds.insert("expert, tensor");
      if (plan.layout.expert_parallel_size > 1 && plan.layout.context_parallel_size > 1)
        kinds.insert("expert, context");
      if (plan.layout.pipeline_parallel_size > 1) kinds.insert("pipeline");
      if (plan.layout.expert_parallel_size > 1) kinds.insert("expert");
      if (plan.layout.context_parallel_size > 1) kinds.insert("context");
      if (plan.layout.zero_stage == 3) kinds.insert("zero 3");
      if (plan.layout.pipeline_parallel_size == 1) continue;
      if (plan.layout.virtual_pipeline_parallel_size > 1) kinds.insert("chunks");
      if (plan.layout.tensor_parallel_size > 1) kinds.insert("pipeline and tensor");
      if (plan.layout.expert_parallel_size > 1) kinds.insert("pipeline and expert");
      if (plan.layout.context_parallel_size > 1) kinds.insert("pipeline and context");
    }
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"tensor", "sequence", "expert, sequence", "pipeline, sequence", "pipeline",
                                          "chunks", "expert", "context", "zero 3", "experts in tensor groups",
                                          "expert, tensor", "expert, context", "pipeline and tensor",
                                          "pipeline and expert", "pipeline and context"}));
}

// A run refuses every division of the job that the search leaves out.
TEST_F(LayoutSearch, LeavesOutWhatRunsRefuse) {
  const PretrainOptions options = pretrain("divisible.json");
  const LayoutRanking ranking = rank_layouts(problem_of(options), 0);
  const auto is_listed = [&](Layout layout) {
    return std::ranges::any_of(ranking.layouts, [&](const LayoutPlan& plan) {
      layout.gradient_checkpointing = plan.layout.gradient_checkpointing;
      return plan.layout == layout;
    });
  };
  int refused = 0;
  for (const std::int64_t tensor : {1, 2, 4}) {
    for (const std::int64_t pipeline : {1, 2, 4}) {
      for (const std::int64_t expert : {1, 2, 4}) {
        for (const std::int64_t context : {1, 2, 4}) {
          for (const std::int64_t zero : {0, 1, 2, 3}) {
            PretrainOptions run = options;
            run.tensor_parallel_size = tensor;
            run.pipeline_parallel_size = pipeline;
            run.expert_parallel_size = expert;
            run.context_parallel_size = context;
            run.zero_stage = zero;
            run.per_device_train_batch_size = 1;
            const bool divides = tensor * pipeline * context <= 4;
            run.gradient_accumulation_steps = divides ? 8 / run.mesh().readers() : 1;
            bool accepted = false;
            try {
              check_mesh(run);
              (void)plan_run(prepare_pretrain(run));
              accepted = true;
            } catch (const Error&) {
              ++refused;
            }
            // A stage of ZeRO without ranks to divide over is the same as stage 0.
            const bool same = zero > 0 && run.shards() == 1;
            if (same) continue;
            EXPECT_EQ(accepted, is_listed(layout_of(run))) << to_text(layout_of(run));
          }
        }
      }
    }
  }
  EXPECT_GT(refused, 0);
}

TEST_F(LayoutSearch, HasOneOrder) {
  const LayoutProblem problem = problem_of(pretrain("divisible.json"));
  const LayoutRanking all = rank_layouts(problem, 0);
  const LayoutRanking again = rank_layouts(problem, 0);
  const LayoutRanking first = rank_layouts(problem, 3);
  ASSERT_EQ(all.layouts.size(), again.layouts.size());
  ASSERT_EQ(first.layouts.size(), 3u);
  for (std::size_t i = 0; i < all.layouts.size(); ++i) {
    EXPECT_EQ(all.layouts[i].layout, again.layouts[i].layout);
    EXPECT_EQ(all.layouts[i].time.total(), again.layouts[i].time.total());
    EXPECT_LE(all.layouts[std::max<std::size_t>(i, 1) - 1].time.total(), all.layouts[i].time.total());
  }
  // The estimates that choose what is planned may miss by a few percent, not the fastest by more.
  EXPECT_LE(first.layouts[0].time.total(), 1.02 * all.layouts[0].time.total());
  EXPECT_EQ(to_text(first, problem), to_text(rank_layouts(problem, 3), problem));
}

TEST_F(LayoutSearch, KeepsTheUsersRecomputationAndUnits) {
  PretrainOptions options = pretrain("divisible.json");
  options.gradient_checkpointing = Recomputation::kOn;
  OptionInput input;
  input.places["gradient_checkpointing"] = "--gradient_checkpointing";
  LayoutProblem problem = problem_of(options, input);
  problem.unit = 2;
  for (const LayoutPlan& plan : rank_layouts(problem, 0).layouts) {
    EXPECT_EQ(plan.layout.gradient_checkpointing, Recomputation::kOn);
    EXPECT_LE(plan.layout.tensor_parallel_size * plan.layout.context_parallel_size, 2);
    EXPECT_LE(plan.layout.pipeline_parallel_size * plan.layout.tensor_parallel_size * plan.layout.context_parallel_size,
              2);
  }
}

TEST_F(LayoutSearch, RefusesWhatFitsNowhere) {
  LayoutProblem problem = problem_of(pretrain("divisible.json"));
  problem.available = 1000;
  try {
    (void)rank_layouts(problem);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("layouts of 4 processes fits"));
    EXPECT_THAT(error.what(), HasSubstr("the smallest, "));
  }
}

// Each allowed layout fits or does not, whatever the choices of recomputation that were tried for it.
TEST_F(LayoutSearch, CountsEachLayoutOnce) {
  LayoutProblem problem = problem_of(pretrain("divisible.json"));
  const LayoutRanking all = rank_layouts(problem, 0);
  EXPECT_EQ(all.layouts.size(), all.allowed);
  EXPECT_EQ(all.too_large, 0u);
  std::vector<std::size_t> bytes;
  for (const LayoutPlan& plan : all.layouts) bytes.push_back(plan.bytes);
  std::ranges::sort(bytes);
  for (const std::size_t share : {1, 2, 3}) {
    problem.available = bytes[bytes.size() * share / 4];
    const LayoutRanking some = rank_layouts(problem, 0);
    EXPECT_EQ(some.allowed, all.allowed);
    EXPECT_EQ(some.layouts.size() + some.too_large, all.allowed) << problem.available;
  }
}

// Stages keep no more micro-batches than there are, so that a pipeline that fits is planned.
TEST_F(LayoutSearch, FindsPipelinesOfFewMicroBatches) {
  PretrainOptions options = pretrain("divisible.json");
  options.per_device_train_batch_size = 16;  // so that activations take more than weights
  const LayoutProblem problem = problem_of(options);
  int found = 0;
  for (const LayoutPlan& plan : rank_layouts(problem, 0).layouts) {
    const Layout& layout = plan.layout;
    if (layout.gradient_accumulation_steps >= layout.pipeline_parallel_size) continue;
    ++found;
    const LayoutPlan estimate = LayoutEstimator(problem).estimate(layout);
    EXPECT_LT(static_cast<double>(estimate.bytes), 1.3 * static_cast<double>(plan.bytes)) << to_text(layout);
  }
  EXPECT_GT(found, 0);
}

// Chunks divide the time that stages wait, send more often, and keep more.
TEST_F(LayoutSearch, ChunksWaitLess) {
  PretrainOptions options = pretrain("divisible.json");
  options.gradient_checkpointing = Recomputation::kOff;
  const LayoutProblem problem = problem_of(options);
  Layout layout = layout_of(options);
  layout.pipeline_parallel_size = 2;
  layout.gradient_accumulation_steps = 8;
  layout.per_device_train_batch_size = 1;
  const LayoutPlan whole = plan_layout(problem, layout);
  EXPECT_LT(LayoutEstimator(problem).estimate(layout).time.bubble, 1.3 * whole.time.bubble);
  layout.virtual_pipeline_parallel_size = 2;
  const LayoutPlan chunks = plan_layout(problem, layout);
  EXPECT_LT(chunks.time.bubble, 0.8 * whole.time.bubble);
  EXPECT_GT(chunks.time.exposed, 1.5 * whole.time.exposed);
  EXPECT_GT(chunks.bytes, whole.bytes);
  EXPECT_LT(LayoutEstimator(problem).estimate(layout).time.bubble,
            LayoutEstimator(problem).estimate(layout).time.total() / 8);
}

// A tensor group whose ranks keep parts of the tokens needs less memory, and gathers them again.
TEST_F(LayoutSearch, SequenceParallelismKeepsLess) {
  PretrainOptions options = pretrain("divisible.json");
  options.gradient_checkpointing = Recomputation::kOff;
  const LayoutProblem problem = problem_of(options);
  Layout layout = layout_of(options);
  layout.tensor_parallel_size = 2;
  layout.gradient_accumulation_steps = 8;
  layout.per_device_train_batch_size = 1;
  const LayoutPlan whole = plan_layout(problem, layout);
  layout.sequence_parallel = true;
  const LayoutPlan rows = plan_layout(problem, layout);
  EXPECT_LT(rows.bytes, whole.bytes);
  EXPECT_GT(rows.time.exposed, whole.time.exposed);
  EXPECT_LT(rows.time.exposed, 3 * whole.time.exposed);
}

// Layouts of checkpoints from before there were chunks and sequence_parallel have none.
TEST(LayoutText, AnOldCheckpointHasNoChunks) {
  const Layout layout{.tensor_parallel_size = 2, .virtual_pipeline_parallel_size = 1, .zero_stage = 1};
  Json saved = to_json(layout);
  EXPECT_EQ(layout_from_json(saved), layout);
  saved.erase("virtual_pipeline_parallel_size");
  saved.erase("sequence_parallel");
  EXPECT_EQ(layout_from_json(saved), layout);
  saved.erase("zero_stage");
  EXPECT_THROW((void)layout_from_json(saved), Error);
}

TEST(PossibleLayouts, HaveChunksThatDivideMicroBatches) {
  TrainingOptions options;
  options.num_processes = 2;
  options.per_device_train_batch_size = 6;
  options.gradient_accumulation_steps = 1;
  int chunks = 0;
  for (const Layout& layout : possible_layouts(options, 2, 100)) {
    if (layout.virtual_pipeline_parallel_size == 1) continue;
    ++chunks;
    EXPECT_EQ(layout.pipeline_parallel_size, 2);
    EXPECT_EQ(layout.gradient_accumulation_steps % 2, 0);
  }
  EXPECT_GT(chunks, 0);
}

// Steps of 12 sequences are cut into 4 micro-batches of 3, whatever the size of a batch.
TEST(PossibleLayouts, CountTheMicroBatchesThatAStepIsCutInto) {
  TrainingOptions options;
  options.num_processes = 2;
  options.per_device_train_batch_size = 6;
  options.gradient_accumulation_steps = 1;
  options.max_tokens_per_micro_batch = 300;
  std::map<std::int64_t, std::set<std::int64_t>> chunks;  // by the size of a batch
  for (const Layout& layout : possible_layouts(options, 2, 100)) {
    if (layout.pipeline_parallel_size != 2) continue;
    chunks[layout.per_device_train_batch_size].insert(layout.virtual_pipeline_parallel_size);
  }
  ASSERT_TRUE(chunks.contains(12)) << "a batch of all sequences";
  for (const auto& [size, tried] : chunks) EXPECT_EQ(tried, (std::set<std::int64_t>{1, 2, 4})) << size;
  options.max_tokens_per_micro_batch = 400;  // 3 micro-batches
  for (const Layout& layout : possible_layouts(options, 2, 100)) EXPECT_EQ(layout.virtual_pipeline_parallel_size, 1);
}

// The place of a resumed run in its data is counted in batches of the checkpoint's size.
TEST(PossibleLayouts, HaveTheBatchSizeOfACheckpoint) {
  TrainingOptions options;
  options.num_processes = 2;
  options.per_device_train_batch_size = 128;
  options.gradient_accumulation_steps = 1;
  const std::vector<Layout> layouts = possible_layouts(options, 2, 100, 128);
  EXPECT_FALSE(layouts.empty());
  for (const Layout& layout : layouts) EXPECT_EQ(layout.per_device_train_batch_size, 128);
  EXPECT_TRUE(possible_layouts(options, 2, 100, 96).empty()) << "128 and 256 sequences are no multiple of 96";
}

TEST(LayoutText, NamesWhatDiffers) {
  Layout layout{.tensor_parallel_size = 2,
                .zero_stage = 1,
                .per_device_train_batch_size = 4,
                .gradient_accumulation_steps = 8,
                .gradient_checkpointing = Recomputation::kOff};
  EXPECT_EQ(to_text(layout), "tensor 2, zero_stage 1, 4 x 8");
  EXPECT_EQ(flags_of(layout),
            "--tensor_parallel_size 2 --zero_stage 1 --per_device_train_batch_size 4 --gradient_accumulation_steps 8 "
            "--gradient_checkpointing false");
  EXPECT_EQ(layout_from_json(to_json(layout)), layout);
  layout.sequence_parallel = true;
  EXPECT_EQ(to_text(layout), "tensor 2, sequence, zero_stage 1, 4 x 8");
  EXPECT_THAT(flags_of(layout), testing::HasSubstr("--zero_stage 1 --sequence_parallel true --per_device"));
  EXPECT_EQ(layout_from_json(to_json(layout)), layout);
  Json broken = to_json(layout);
  broken["sequence_parallel"] = "yes";
  EXPECT_THROW((void)layout_from_json(broken), Error);
  layout = {};
  EXPECT_EQ(to_text(layout), "data parallel, 1 x 1, recomputing what must be");
  broken = to_json(layout);
  broken["zero_stage"] = "two";
  EXPECT_THROW((void)layout_from_json(broken), Error);
  broken.erase("zero_stage");
  EXPECT_THROW((void)layout_from_json(broken), Error);
  broken = to_json(layout);
  broken["gradient_checkpointing"] = 1;
  EXPECT_THROW((void)layout_from_json(broken), Error);
}

}  // namespace
}  // namespace hone::test
