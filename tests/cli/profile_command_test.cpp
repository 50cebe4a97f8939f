// Tests the command line of hone profile, on known shapes and on recipes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command_line.h"
#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "support/miniature.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(ProfileCommand, WritesItsFiles) {
  const TemporaryDirectory directory;
  const std::string folder = directory.path() / "out";
  const Ended ended = run_program({"profile", "--model", "quickstart", "--layers", "1", "--seq_len", "16",
                                   "--gradient_accumulation_steps", "2", "--num_steps", "2", "--warmup_steps", "2",
                                   "--limit_seconds", "0.01", "--device", "cpu", "--output_dir", folder});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("category"));
  EXPECT_THAT(ended.output, HasSubstr("layers.*.attention"));
  const Json summary = read_json(fs::path(folder) / "kernel_summary.json");
  EXPECT_EQ(summary["num_steps"], 2);
  EXPECT_GT(summary["unprofiled_step_ms"].get<double>(), 0.0);
  double sum = 0;
  for (const Json& category : summary["categories"]) sum += category["ms"].get<double>();
  EXPECT_NEAR(sum, summary["step_ms"].get<double>(), 1e-6);
  EXPECT_FALSE(summary["advice"].empty());
  const Json& counters = summary["counters"];
  EXPECT_TRUE(counters["refusal"] != "" || counters["kernels"][0].contains("cycles"));
  for (const Json& kernel : counters["kernels"]) EXPECT_GT(kernel["ms"].get<double>(), 0.0);
  const Json trace = read_json(fs::path(folder) / "chrome_trace.json");
  std::size_t updates = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "gradient_norm") ++updates;
  }
  EXPECT_EQ(updates, 2u);
}

TEST(ProfileCommand, TakesARecipe) {
  const TemporaryDirectory directory;
  write_miniature(directory.path());
  const std::string recipe = directory.path() / "recipe.yaml";
  write_file(recipe, text_of("model_config_path: ", (directory.path() / "model.json").string(),
                             "\ntokenizer_name_or_path: ", (directory.path() / "tokenizer").string(),
                             "\ndataset_name: ", (directory.path() / "data/corpus.jsonl").string(),
                             "\nblock_size: 32\nper_device_train_batch_size: 2\nwarmup_steps: 7\ndevice: cpu\n"));
  const std::string folder = directory.path() / "out";
  const Ended ended = run_program({"profile", "pretrain", recipe, "--num_steps", "1", "--warmup_steps", "2",
                                   "--limit_seconds", "0.01", "--output_dir", folder});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(read_json(fs::path(folder) / "kernel_summary.json")["what"], "pretrain");
  const Ended alone = run_program({"profile", recipe, "--num_steps", "1", "--warmup_steps", "2", "--limit_seconds",
                                   "0.01", "--output_dir", folder});
  EXPECT_EQ(alone.code, 0) << alone.output;
  const Ended lost = run_program({"profile", recipe, "--optim", "sgd", "--output_dir", folder});
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.output, HasSubstr("--optim: has no effect with a recipe"));
  for (const std::string key :
       {"tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size", "context_parallel_size"}) {
    write_file(directory.path() / "divided.yaml", read_file(recipe) + "num_processes: 2\n" + key + ": 2\n");
    const Ended divided =
        run_program({"profile", "pretrain", directory.path() / "divided.yaml", "--output_dir", folder});
    EXPECT_EQ(divided.code, 1) << key;
    EXPECT_THAT(divided.output, HasSubstr(key + ": is 2, but a profile is of one process"));
  }
}

// With dtype float32 the default optimizer becomes adamw_torch, as the help text says.
TEST(ProfileCommand, Float32NeedsNoOptimizer) {
  const TemporaryDirectory directory;
  const std::vector<std::string> small{"--model", "quickstart", "--layers", "1",       "--seq_len",
                                       "16",      "--device",   "cpu",      "--dtype", "float32"};
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), small.begin(), small.end());
    return run_program(arguments);
  };
  const Ended profiled = run(
      {"profile", "--num_steps", "1", "--limit_seconds", "0.01", "--output_dir", (directory.path() / "out").string()});
  EXPECT_EQ(profiled.code, 0) << profiled.output;
  const Ended trained = run({"bench", "train", "--seconds", "0.01", "--warmup_seconds", "0"});
  EXPECT_EQ(trained.code, 0) << trained.output;
  const Ended kernels = run({"bench", "kernels", "--seconds", "0.001", "--ops", "adamw"});
  EXPECT_EQ(kernels.code, 0) << kernels.output;
  const Ended products = run_program({"bench", "matmul", "--model", "quickstart", "--tokens", "16", "--device", "cpu",
                                      "--dtypes", "float32", "--seconds", "0.001"});
  EXPECT_EQ(products.code, 0) << products.output;
  const Ended refused = run({"bench", "train", "--optim", "adamw_bf16", "--seconds", "0.01"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("adamw_bf16 is for weights of bfloat16"));
}

TEST(ProfileCommand, RefusesWhatItDoesNotKnow) {
  const Ended ended = run_program({"profile", "walk", "x"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("expected pretrain, sft or grpo and a recipe, saw 'walk x'"));
}

// A model that was pretrained for one step, for recipes that start from one.
class ProfileRecipes : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_miniature(folder_->path());
    const Ended ended = run_program(pretrain_arguments(
        folder_->path(), {"--max_steps", "1", "--per_device_train_batch_size", "2", "--output_dir", path("model")}));
    ASSERT_EQ(ended.code, 0) << ended.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }
  [[nodiscard]] static std::string path(const std::string& relative) { return (folder_->path() / relative).string(); }

  // Profiles a recipe of these lines with few steps, and returns kernel_summary.json.
  static Json profiled(const std::string& kind, const std::string& lines, const std::vector<std::string>& more = {}) {
    const std::string recipe = path(kind + "-recipe.yaml");
    write_file(recipe, "model_name_or_path: " + path("model") + "\ndevice: cpu\n" + lines);
    std::vector<std::string> arguments{
        "profile",         kind,   recipe,         "--num_steps", "2", "--warmup_steps", "2", "--trial_steps", "1",
        "--limit_seconds", "0.01", "--output_dir", path("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run_program(arguments);
    EXPECT_EQ(ended.code, 0) << ended.output;
    return read_json(path("out/kernel_summary.json"));
  }

  inline static std::unique_ptr<TemporaryDirectory> folder_;
};

const Json* trial_of(const Json& summary, const std::string& key) {
  for (const Json& trial : summary["trials"]) {
    if (trial["settings"].contains(key)) return &trial;
  }
  return nullptr;
}

// Returns the tokens of a step of a trial.
double tokens_of(const Json& trial) {
  return trial["tokens_per_second"].get<double>() * trial["step_ms"].get<double>() * 1e-3;
}

TEST_F(ProfileRecipes, TriesWhatARecipeSetsBadly) {
  const Json bad = profiled("sft", "dataset_name: " + path("data/sft.jsonl") +
                                       "\npacking: false\nmax_length: 256\ntorch_dtype: float32\n"
                                       "gradient_checkpointing: true\nper_device_train_batch_size: 1\n"
                                       "gradient_accumulation_steps: 4\n");
  const double tokens = bad["tokens_per_step"];
  EXPECT_GT(bad["data_ms"].get<double>(), 0.0);
  for (const char* key : {"packing", "gradient_checkpointing", "torch_dtype", "max_tokens_per_micro_batch"}) {
    const Json* trial = trial_of(bad, key);
    ASSERT_NE(trial, nullptr) << key;
    ASSERT_TRUE(trial->contains("gain")) << trial->dump();
    const double rate = (*trial)["tokens_per_second"];
    const Json& baseline = bad["trial_baseline"];
    EXPECT_NEAR((*trial)["gain"].get<double>(), rate / baseline["tokens_per_second"].get<double>(), 1e-6);
    const double tried = tokens_of(*trial);
    if (std::string(key) == "packing") {
      EXPECT_GT(tried, 1.5 * tokens) << "packed rows hold more tokens";
    } else {
      EXPECT_NEAR(tried, tokens_of(baseline), 1e-6 * tried) << "the same steps are compared";
    }
  }
  const Json good = profiled("sft", "dataset_name: " + path("data/sft.jsonl") +
                                        "\npacking: true\nmax_length: 256\ntorch_dtype: bfloat16\n"
                                        "gradient_checkpointing: false\nper_device_train_batch_size: 2\n");
  for (const char* key : {"packing", "gradient_checkpointing", "torch_dtype", "max_tokens_per_micro_batch"}) {
    EXPECT_EQ(trial_of(good, key), nullptr) << key;
  }
}

TEST_F(ProfileRecipes, AdvisesWithoutTrials) {
  const Json none = profiled("sft", "dataset_name: " + path("data/sft.jsonl") + "\npacking: false\nmax_length: 64\n",
                             {"--trial_steps", "0"});
  EXPECT_TRUE(none["trials"].empty());
  EXPECT_THAT(none["advice"].dump(), HasSubstr("packing: true was not tried"));
}

TEST_F(ProfileRecipes, FindsTheSlowReward) {
  write_file(
      path("slow.py"),
      "import time\ndef slow(completions, **kwargs):\n    time.sleep(0.3)\n    return [1.0] * len(completions)\n");
  const std::string lines = "dataset_name: " + path("data/prompts.jsonl") +
                            "\nnum_generations: 4\nper_device_train_batch_size: 4\nbeta: 0\n"
                            "max_completion_length: 4\nreward_funcs: [tag_count, '" +
                            path("slow.py") + ":slow']\ntorch_dtype: float32\n";
  const Json summary = profiled("grpo", lines);
  EXPECT_EQ(summary["what"], "grpo");
  EXPECT_EQ(summary["rewards"].size(), 2u);
  EXPECT_THAT(summary["rewards"][0]["name"].get<std::string>(), HasSubstr("slow"));
  EXPECT_GE(summary["rewards"][0]["ms"].get<double>(), 300);
  EXPECT_EQ(summary["rewards"][0]["completions"], 4.0);
  double sum = 0;
  for (const Json& phase : summary["phases"]) sum += phase["ms"].get<double>();
  EXPECT_NEAR(sum, summary["step_ms"].get<double>(), 1e-6);
  EXPECT_NE(trial_of(summary, "torch_dtype"), nullptr);
  EXPECT_THAT(summary["advice"].dump(), HasSubstr("slow takes"));
  const Ended lost = run_program({"profile", path("grpo-recipe.yaml"), "--optim", "sgd", "--output_dir", path("out")});
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.output, HasSubstr("--optim: has no effect with a recipe"));
}

// Steps of grpo write into a temporary folder, which is removed after a failure, too.
TEST_F(ProfileRecipes, LeavesOtherFoldersAlone) {
  hone::create_directories(path("runs/grpo"));
  write_file(path("runs/grpo/model"), "x");
  write_file(path("fails.py"), "def fails(completions, **kwargs):\n    raise ValueError('never')\n");
  for (const std::string& reward : {std::string("tag_count"), "'" + path("fails.py") + ":fails'"}) {
    const std::string recipe = path("grpo-folders.yaml");
    write_file(recipe, "model_name_or_path: " + path("model") + "\ndataset_name: " + path("data/prompts.jsonl") +
                           "\ndevice: cpu\nnum_generations: 4\nper_device_train_batch_size: 4\nbeta: 0\n"
                           "max_completion_length: 4\nreward_funcs: [" +
                           reward + "]\n");
    const Ended ended = run_program(
        {"profile", "grpo", recipe, "--num_steps", "1", "--trial_steps", "0", "--output_dir", path("runs")});
    EXPECT_EQ(ended.code, reward == "tag_count" ? 0 : 1) << ended.output;
    EXPECT_EQ(list_folder(path("runs")), (std::vector<std::string>{"grpo", "kernel_summary.json"})) << ended.output;
    EXPECT_EQ(list_folder(path("runs/grpo")), (std::vector<std::string>{"model"}));
  }
}

}  // namespace
}  // namespace hone::test
