// GRPO that trains a LoRA adapter.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "model/lora.h"
#include "rl/small_run.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

GrpoOptions lora_options(const fs::path& folder) {
  GrpoOptions options = small_options(folder);
  options.use_peft = true;
  options.lora_r = 4;
  options.lora_alpha = 8;
  options.lora_target_modules = {"all-linear"};
  options.learning_rate = 1e-2;
  options.beta = 0.1;
  return options;
}

// The base model is the reference: kl is 0 before the first update and above 0 after it.
TEST(GrpoLora, TheBaseIsTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const TemporaryDirectory folder;
    const std::vector<MetricRow> rows = train_rows(lora_options(folder.path()), 4, "qwen3", dtype);
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_NEAR(value_of(rows[0], "kl"), 0.0, dtype == DType::kF32 ? 1e-8 : 1e-3);
    EXPECT_GT(value_of(rows[3], "kl"), 1e-6);
    for (const MetricRow& row : rows) EXPECT_EQ(value_of(row, "sampling/sampling_logp_difference/max"), 0.0);
    EXPECT_TRUE(is_file(folder.path() / "adapter_model.safetensors"));
    EXPECT_TRUE(is_file(folder.path() / "adapter_config.json"));
    EXPECT_FALSE(is_file(folder.path() / "model.safetensors"));
  }
}

TEST(GrpoLora, NeedsNoSecondCopyAndFewStates) {
  const TemporaryDirectory folder;
  GrpoOptions options = lora_options(folder.path());
  const GrpoRun adapted = make_run(options, 1);
  options.use_peft = false;
  const GrpoRun full = make_run(options, 1);
  const MemoryBreakdown small = trace_run(adapted).memory();
  const MemoryBreakdown large = trace_run(full).memory();
  EXPECT_EQ(small.reference, 0u);
  EXPECT_EQ(large.reference, large.weights);
  EXPECT_LT(small.optimizer, large.optimizer / 3);
  EXPECT_LT(small.gradients, large.gradients / 3);
}

TEST(GrpoLora, ResumesBitwise) {
  const TemporaryDirectory whole;
  GrpoOptions options = lora_options(whole.path());
  options.use_dora = true;
  options.save_strategy = SaveStrategy::kSteps;
  options.save_steps = 2;
  // The rows of k have no adapter, so no part of the block holds them.
  options.lora_target_modules = {"q_proj", "v_proj", "down_proj"};
  const std::vector<MetricRow> rows = train_rows(options, 5, "qwen3", DType::kBf16);
  for (const bool first_format : {false, true}) {
    const TemporaryDirectory resumed;
    options.output_dir = resumed.path().string();
    const fs::path checkpoint = whole.path() / "checkpoint-2";
    if (first_format) write_as_first_format(checkpoint, *make_run(options, 5, "qwen3", DType::kBf16).model);
    options.resume_from_checkpoint = checkpoint.string();
    const std::vector<MetricRow> later = train_rows(options, 5, "qwen3", DType::kBf16);
    ASSERT_EQ(later.size(), 3u);
    for (std::size_t i = 0; i < later.size(); ++i) {
      EXPECT_EQ(value_of(later[i], "loss"), value_of(rows[i + 2], "loss"));
      EXPECT_EQ(value_of(later[i], "grad_norm"), value_of(rows[i + 2], "grad_norm"));
    }
    for (const char* file : {"adapter_model.safetensors", "checkpoint-4/optimizer.safetensors"}) {
      EXPECT_EQ(read_file(whole.path() / file), read_file(resumed.path() / file)) << file;
    }
  }
  // A checkpoint of an adapter is not a checkpoint of the whole model.
  options.use_peft = false;
  EXPECT_THROW((void)train_rows(options, 5, "qwen3", DType::kBf16), Error);
}

}  // namespace
}  // namespace hone::test
