// Runs whose micro-batches are cut by tokens: neither the cut nor the capacity of a program changes what a step is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "support/device.h"
#include "support/miniature.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/language_run.h"
#include "train/metrics.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class MicroBatchesTest : public testing::Test {
 protected:
  MicroBatchesTest() {
    set_quiet(true);
    write_miniature(folder.path());
    PretrainOptions base;
    base.model_config_path = path("model.json");
    base.tokenizer_name_or_path = path("tokenizer");
    base.dataset_name = path("data/corpus.jsonl");
    base.output_dir = path("base");
    base.block_size = 64;
    base.max_steps = 1;
    LanguageRun run = prepare_pretrain(base);
    (void)train(run);
  }
  ~MicroBatchesTest() override { set_quiet(false); }

  [[nodiscard]] std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  [[nodiscard]] SftOptions sft(std::optional<std::int64_t> max_tokens) const {
    SftOptions options;
    options.model_name_or_path = path("base");
    options.dataset_name = path("data/sft.jsonl");
    options.eval_dataset_name = path("data/sft.jsonl");
    options.eval_strategy = Interval::kSteps;
    options.eval_steps = 2;
    options.max_length = 200;
    options.per_device_train_batch_size = 4;
    options.gradient_accumulation_steps = 3;
    options.learning_rate = 1e-3;
    options.max_steps = 5;
    options.logging_steps = 1;
    options.save_strategy = SaveStrategy::kNo;
    options.output_dir = path("out");
    options.overwrite_output_dir = true;
    options.max_tokens_per_micro_batch = max_tokens;
    return options;
  }
  // Trains and returns the rows of metrics.
  [[nodiscard]] static std::vector<MetricRow> rows_of(const SftOptions& options) {
    LanguageRun run = prepare_sft(options);
    (void)train(run);
    return read_metrics(fs::path(options.output_dir) / "metrics.jsonl");
  }

  TemporaryDirectory folder;
};

std::vector<double> values_of(std::span<const MetricRow> rows, std::string_view name) {
  std::vector<double> values;
  for (const MetricRow& row : rows) {
    if (const std::optional<double> value = row.find(name)) values.push_back(*value);
  }
  return values;
}

TEST_F(MicroBatchesTest, TheCutChangesAStepByRoundingAlone) {
  const StepSizes sizes = sizes_of(prepare_sft(sft(std::nullopt))).steps;
  const std::vector<MetricRow> whole = rows_of(sft(1'000'000));
  for (const std::optional<std::int64_t> most :
       {std::optional<std::int64_t>(sizes.longest.tokens), std::optional<std::int64_t>(),
        std::optional<std::int64_t>(sizes.batch.tokens * 2)}) {
    SCOPED_TRACE(most.value_or(0));
    const std::vector<MetricRow> cut = rows_of(sft(most));
    for (const char* name : {"loss", "eval_loss", "grad_norm", "entropy", "mean_token_accuracy"}) {
      const std::vector<double> wanted = values_of(whole, name);
      const std::vector<double> values = values_of(cut, name);
      ASSERT_EQ(values.size(), wanted.size());
      ASSERT_GE(values.size(), 2u);
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(values[i], wanted[i], 1e-4 * std::abs(wanted[i])) << name << ", row " << i;
      }
    }
    EXPECT_EQ(values_of(cut, "num_tokens"), values_of(whole, "num_tokens"));
    for (const double share : values_of(cut, "padding")) {
      EXPECT_GE(share, 0);
      EXPECT_LT(share, 1);
    }
  }
}

TEST_F(MicroBatchesTest, MoreCapacitiesMultiplyLessPadding) {
  SftOptions options = sft(std::nullopt);
  options.per_device_train_batch_size = 16;
  options.gradient_accumulation_steps = 1;
  const LanguageRun run = prepare_sft(options);
  const MicroBatchShape shape = training_shape(sizes_of(run), options);
  ASSERT_GT(shape.capacities.size(), 1u);
  const Workspace workspace = trace_run(run);
  EXPECT_EQ(workspace.program(kTrainingProgram).find_count(Count::tokens)->capacity, shape.limits.tokens);
  EXPECT_TRUE(workspace.has_program(text_of("training of ", shape.capacities[0], " tokens")));
  double padded = 0;
  for (const double share : values_of(rows_of(options), "padding")) padded += share;
  options.activation_offloading = true;
  EXPECT_EQ(training_shape(sizes_of(run), options).capacities.size(), 1u);
  double alone = 0;
  for (const double share : values_of(rows_of(options), "padding")) alone += share;
  EXPECT_LT(padded, 0.75 * alone);
}

TEST_F(MicroBatchesTest, ResumesBitForBit) {
  SftOptions options = sft(400);
  options.save_strategy = SaveStrategy::kSteps;
  options.save_steps = 3;
  const std::vector<MetricRow> whole = rows_of(options);
  options.resume_from_checkpoint = path("out/checkpoint-3");
  options.output_dir = path("resumed");
  const std::vector<MetricRow> later = rows_of(options);
  for (const char* name : {"loss", "grad_norm", "num_tokens", "padding"}) {
    const std::vector<double> wanted = values_of(whole, name);
    EXPECT_EQ(values_of(later, name), std::vector<double>(wanted.begin() + 3, wanted.end())) << name;
  }
  EXPECT_EQ(read_file(path("out/model.safetensors")), read_file(path("resumed/model.safetensors")));
}

TEST_F(MicroBatchesTest, ALimitBelowTheLongestSequenceIsOneLine) {
  const std::int64_t longest = sizes_of(prepare_sft(sft(std::nullopt))).steps.longest.tokens;
  try {
    LanguageRun run = prepare_sft(sft(longest - 1));
    (void)train(run);
    FAIL() << "it was not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(text_of("max_tokens_per_micro_batch: is ", longest - 1,
                                                         ", but the longest sequence of the training data has ",
                                                         longest, " tokens, and a sequence is never split")));
  }
  SftOptions offloading = sft(longest);
  EXPECT_EQ(training_shape(sizes_of(prepare_sft(offloading)), offloading).limits.tokens, longest);
}

// The same micro-batch in programs of several capacities: same loss and gradients.
TEST(Capacities, ChangeNoBitOfAStep) {
  FixtureModel fixture("qwen3");
  const HostBatch batch = fixture.batch();
  std::vector<std::vector<std::byte>> gradients;
  std::vector<double> losses;
  for (const std::int64_t room : {0, 37, 400}) {
    Workspace workspace(test_device().kind());
    workspace.add_weights(kWeightStore, fixture.weights.tensors());
    const std::vector<std::int64_t> capacities{batch.token_count() + room, batch.token_count() + 500};
    const auto trace = [&](std::int64_t tokens) {
      return trace_training(*fixture.model, {.capacity = {tokens, batch.document_count() + 2},
                                             .compile = {.device = test_device().kind()}});
    };
    add_sized(workspace, kTrainingProgram, capacities, trace, {});
    workspace.provide(kWeightStore, fixture.weights.view());
    workspace.allocate(test_device());
    const SizedExecutables programs(workspace, kTrainingProgram);
    EXPECT_EQ(SizedExecutables::capacity_of(programs.holding(batch.token_count())), capacities[0]);
    EXPECT_EQ(&programs.holding(capacities[0] + 1), &programs.largest());
    EXPECT_THROW((void)programs.holding(capacities[1] + 1), Defect);
    LossLaunches launches(programs, 2);
    launches.launch(batch, 0.25);
    launches.launch(batch, 0.5);
    const LossSums sums = launches.sums();
    EXPECT_DOUBLE_EQ(sums.padding.share(), static_cast<double>(room) / static_cast<double>(batch.token_count() + room));
    losses.push_back(sums.loss);
    std::vector<std::byte>& all = gradients.emplace_back();
    const TensorStore& store = workspace.store(kGradientStore);
    for (const NamedType& tensor : store.tensors()) {
      const std::vector<std::byte> bytes = store.download(tensor.name);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  }
  // GEMMs on a GPU sum weight gradients over the whole capacity, in an order that depends on it.
  if (test_device().kind() != DeviceKind::kCpu) return;
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);
  EXPECT_EQ(gradients[1], gradients[0]);
  EXPECT_EQ(gradients[2], gradients[0]);
}

}  // namespace
}  // namespace hone::test
