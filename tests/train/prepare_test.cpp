// Preparation of runs: the token cache, batches, evaluation data and the model's configuration.
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "train/config_overrides.h"
#include "train/language_run.h"

namespace hone::test {
namespace {

class PrepareTest : public testing::Test {
 protected:
  PrepareTest() {
    write_miniature(folder.path());
    options.model_config_path = path("model.json");
    options.tokenizer_name_or_path = path("tokenizer");
    options.dataset_name = path("data/corpus.jsonl");
    options.output_dir = path("out");
    options.block_size = 64;
    options.per_device_train_batch_size = 16;
    options.num_train_epochs = 1;
    options.device = DeviceChoice::kCpu;
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  // Prepares a run and returns its log.
  std::string said() {
    testing::internal::CaptureStderr();
    (void)prepare_pretrain(options);
    return testing::internal::GetCapturedStderr();
  }

  TemporaryDirectory folder;
  PretrainOptions options;
};

TEST_F(PrepareTest, SecondStartReadsWhatTheFirstEncoded) {
  const std::string line = "tokens loaded from the cache";
  EXPECT_EQ(said().find(line), std::string::npos);
  EXPECT_NE(said().find(line), std::string::npos);
  options.token_cache = false;
  EXPECT_EQ(said().find(line), std::string::npos);
  options.token_cache = true;
  options.sample_by = SampleBy::kLine;
  options.dry_run = true;
  EXPECT_EQ(said().find(line), std::string::npos);
  EXPECT_EQ(said().find(line), std::string::npos) << "a dry run writes no cache";
}

TEST_F(PrepareTest, LastBatchMayBeLeftOut) {
  const LanguageRun whole = prepare_pretrain(options);
  options.dataloader_drop_last = true;
  const LanguageRun dropped = prepare_pretrain(options);
  EXPECT_EQ(dropped.batches->batches_per_epoch(), whole.batches->batches_per_epoch() - 1);
  EXPECT_EQ(dropped.total_steps, whole.total_steps - 1);
  const std::int64_t full = dropped.batches->limits().tokens;
  for (std::int64_t i = 0; i < dropped.batches->batches_per_epoch(); ++i) {
    // The last row of the stream may be short.
    EXPECT_GT(dropped.batches->next().token_count(), full - options.block_size);
  }
}

TEST_F(PrepareTest, ConfigurationCanBeOverridden) {
  EXPECT_EQ(prepare_pretrain(options).model->shape().num_hidden_layers, 2);
  options.config_overrides = "num_hidden_layers=3, hidden_size=64,tie_word_embeddings=false,rope_theta=1e6";
  const LanguageRun run = prepare_pretrain(options);
  EXPECT_EQ(run.model->shape().num_hidden_layers, 3);
  EXPECT_EQ(run.model->shape().hidden_size, 64);
  EXPECT_EQ(run.model->config()["tie_word_embeddings"], false);
  EXPECT_EQ(run.model->config()["rope_theta"], 1e6);
}

TEST(ConfigOverrides, AreOfTheTypeThatTheKeyHas) {
  Json config = {{"layers", 2}, {"theta", 1e4}, {"tied", true}, {"name", "a"}, {"scaling", {{"factor", 2}}}};
  override_config(config, "");
  override_config(config, "layers=-3,theta=5,tied=no,name=b c");
  EXPECT_EQ(config.dump(), R"({"layers":-3,"theta":5.0,"tied":false,"name":"b c","scaling":{"factor":2}})");
  const auto error_of = [&](std::string_view overrides) -> std::string {
    try {
      override_config(config, overrides);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of("layer=3"), "config_overrides: 'layer' is not in the configuration (did you mean layers?)");
  EXPECT_EQ(error_of("layers=2.5"), "config_overrides: layers is '2.5', expected a whole number");
  EXPECT_EQ(error_of("theta=x"), "config_overrides: theta is 'x', expected a number");
  EXPECT_EQ(error_of("tied=2"), "config_overrides: tied is '2', expected true or false");
  EXPECT_EQ(error_of("layers"), "config_overrides: expected key=value, saw 'layers' (for example num_hidden_layers=4)");
  EXPECT_EQ(error_of("scaling=1"),
            "config_overrides: scaling is object in the configuration (numbers, text, true and false can be replaced; "
            "write others into the file)");
}

}  // namespace
}  // namespace hone::test
