// The recipes of open-r1's documents and their accelerate file, unchanged: the model is found by its name in a cache of
// Hugging Face's layout, the data is named on the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/command_line.h"
#include "core/files.h"
#include "core/strings.h"
#include "support/environment.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "support/small_hub.h"
#include "train/metrics.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

std::string recipe(const char* name) { return fixture("train/recipes/" + std::string(name)).string(); }

class Recipes : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_miniature(root());
    const CommandResult ended =
        run_commands({"pretrain", "--model_config_path", at("model.json"), "--tokenizer_name_or_path", at("tokenizer"),
                      "--dataset_name", at("data/corpus.jsonl"), "--block_size", "64", "--max_steps", "1",
                      "--save_strategy", "no", "--output_dir", at("model")});
    ASSERT_EQ(ended.code, 0) << ended.said;
    // The path at which a download would store the model.
    const fs::path snapshot = root() / "hf/hub/models--Qwen--Qwen2.5-Math-7B/snapshots/abc";
    fs::create_directories(snapshot);
    for (const std::string& name : list_folder(root() / "model")) {
      if (is_file(root() / "model" / name)) fs::copy_file(root() / "model" / name, snapshot / name);
    }
    const std::string config = read_file(snapshot / "config.json");
    const std::string positions = "\"max_position_embeddings\": 256";
    ASSERT_NE(config.find(positions), std::string::npos);
    write_file(snapshot / "config.json", std::string(config).replace(config.find(positions), positions.size(),
                                                                     "\"max_position_embeddings\": 8192"));
    fs::copy(snapshot, snapshot.parent_path() / "def");
    fs::create_directories(snapshot.parent_path() / "empty");
    fs::create_directories(snapshot.parent_path().parent_path() / "refs");
    write_file(snapshot.parent_path().parent_path() / "refs/main", "abc");
    write_file(snapshot.parent_path().parent_path() / "refs/v2", "def");
    write_file(snapshot.parent_path().parent_path() / "refs/v3", "empty");
    ::setenv("HF_HOME", (root() / "hf").c_str(), 1);
  }
  static void TearDownTestSuite() {
    ::unsetenv("HF_HOME");
    folder_.reset();
  }
  [[nodiscard]] static fs::path root() { return folder_->path(); }
  [[nodiscard]] static std::string at(const std::string& relative) { return (root() / relative).string(); }

  inline static std::unique_ptr<TemporaryDirectory> folder_;
};

TEST_F(Recipes, SftTrainsUnderItsAccelerateFile) {
  const CommandResult ended =
      run_commands({"sft", "--config", recipe("sft.yaml"), "--config_file", recipe("accelerate.yaml"), "--dataset_name",
                    at("data/sft.jsonl"), "--output_dir", at("sft"), "--max_steps", "2", "--num_processes", "1"});
  ASSERT_EQ(ended.code, 0) << ended.said;
  EXPECT_THAT(ended.said, HasSubstr("dataset_num_proc has no effect"));
  EXPECT_EQ(read_metrics(at("sft/metrics.jsonl")).back().step, 2);
}

TEST_F(Recipes, GrpoIsReadyToStart) {
  const CommandResult ended = run_commands({"grpo", "--config", recipe("grpo.yaml"), "--dataset_name",
                                            at("data/prompts.jsonl"), "--output_dir", at("grpo"), "--dry_run"});
  ASSERT_EQ(ended.code, 0) << ended.said;
  EXPECT_THAT(ended.said, HasSubstr("use_vllm has no effect: the key rollout says"));
  EXPECT_THAT(ended.said,
              HasSubstr("vllm_server_url has no effect: completions come from hone's engine in this process "
                        "(rollout: server uses a server)"));
  EXPECT_THAT(ended.printed, HasSubstr("a generation is 2 x 16 completions"));
  EXPECT_THAT(ended.printed, HasSubstr("dry run: nothing was trained, nothing was written"));
  EXPECT_FALSE(fs::exists(at("grpo")));
  const CommandResult served =
      run_commands({"grpo", "--config", recipe("grpo.yaml"), "--dataset_name", at("data/prompts.jsonl"), "--output_dir",
                    at("grpo"), "--rollout", "server", "--dry_run"});
  ASSERT_EQ(served.code, 0) << served.said;
  EXPECT_THAT(served.said, testing::Not(HasSubstr("vllm_server_url has no effect")));
  EXPECT_FALSE(fs::exists(at("grpo")));
}

TEST_F(Recipes, GrpoTrainsWithShorterCompletions) {
  const CommandResult ended =
      run_commands({"grpo", "--config", recipe("grpo.yaml"), "--dataset_name", at("data/prompts.jsonl"), "--output_dir",
                    at("grpo"), "--max_completion_length", "8", "--max_steps", "1"});
  ASSERT_EQ(ended.code, 0) << ended.said;
  EXPECT_TRUE(read_metrics(at("grpo/metrics.jsonl")).back().find("rewards/accuracy_reward/mean").has_value());
}

TEST_F(Recipes, GrpoStartsFromPromptsThatWereEncodedBefore) {
  const auto start = [&](const std::string& cached) {
    return run_commands({"grpo", "--config", recipe("grpo.yaml"), "--dataset_name", at("data/prompts.jsonl"),
                         "--output_dir", at("kept-" + cached), "--max_completion_length", "8", "--max_steps", "1",
                         "--system_prompt", "Prompts of this test alone.", "--token_cache", cached});
  };
  const std::string line = "tokens loaded from the cache";
  EXPECT_THAT(start("true").said, testing::Not(HasSubstr(line)));
  fs::remove_all(at("kept-true"));
  const CommandResult second = start("true");
  EXPECT_EQ(second.code, 0) << second.said;
  EXPECT_THAT(second.said, HasSubstr(line));
  EXPECT_THAT(start("false").said, testing::Not(HasSubstr(line)));
}

TEST_F(Recipes, SftTakesRowsThatAreTokensAlready) {
  const auto train = [&](const std::string& data) {
    return run_commands({"sft", "--config", recipe("sft.yaml"), "--dataset_name", data, "--output_dir", at("tokens"),
                         "--overwrite_output_dir", "--max_steps", "1", "--packing", "false",
                         "--dataset_kwargs.skip_prepare_dataset", "true"});
  };
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += "{\"input_ids\": [5, 6, 7, 8, 9], \"labels\": [-100, 6, 7, -100, 9]}\n";
  write_file(root() / "data/tokens.jsonl", rows);
  const CommandResult ended = train(at("data/tokens.jsonl"));
  ASSERT_EQ(ended.code, 0) << ended.said;
  EXPECT_EQ(read_metrics(at("tokens/metrics.jsonl")).back().step, 1);
  const CommandResult text = train(at("data/sft.jsonl"));
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.said, HasSubstr("input_ids"));
}

TEST_F(Recipes, ADryRunSaysWhatWouldHappen) {
  const std::vector<std::string> sft{
      "sft",         "--config", recipe("sft.yaml"), "--dataset_name", at("data/sft.jsonl"), "--output_dir", at("dry"),
      "--max_steps", "40",       "--dry_run"};
  const CommandResult ended = run_commands(sft);
  ASSERT_EQ(ended.code, 0) << ended.said;
  for (const char* part : {"parameters, in bf16", "weights", "it fits", "steps 40",
                           "cosine_with_min_lr, 2 steps of warm-up", "starts from scratch", "batches per epoch"}) {
    EXPECT_THAT(ended.printed, HasSubstr(part));
  }
  EXPECT_FALSE(fs::exists(at("dry")));
  // A dry run also finds errors that otherwise only the first step would show: an unusable output folder, weights of
  // other shapes.
  std::vector<std::string> wrong = sft;
  wrong[6] = at("model.json");
  const CommandResult refused = run_commands(wrong);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.said, HasSubstr("hone: error: output_dir: cannot create the folder"));
  fs::copy(root() / "model", root() / "other");
  const std::string config = read_file(root() / "other/config.json");
  const std::string size = "\"intermediate_size\": 48";
  ASSERT_NE(config.find(size), std::string::npos);
  write_file(root() / "other/config.json",
             std::string(config).replace(config.find(size), size.size(), "\"intermediate_size\": 64"));
  std::vector<std::string> shape = sft;
  shape.insert(shape.end(), {"--model_name_or_path", at("other")});
  const CommandResult mismatch = run_commands(shape);
  EXPECT_EQ(mismatch.code, 1);
  EXPECT_THAT(mismatch.said, HasSubstr("config.json requires"));
}

// Recipes as open-r1 publishes them: they push checkpoints and score them on benchmarks.
class PushingRecipes : public Recipes {
 protected:
  PushingRecipes() { hub_.need_token("hf_token"); }

  SmallHub hub_;
  const Environment endpoint_{hub_.variables(root() / "hf")};
};

TEST_F(PushingRecipes, AreTakenAsTheyStand) {
  const Environment token(Variables{{"HF_TOKEN", "hf_token"}});
  const CommandResult sft = run_commands({"sft", "--config", recipe("open_r1_push_sft.yaml"), "--dataset_name",
                                          at("data/sft.jsonl"), "--output_dir", at("pushed-sft"), "--max_steps", "2"});
  ASSERT_EQ(sft.code, 0) << sft.said;
  EXPECT_THAT(hub_.messages(), testing::Contains("End of training"));
  const SmallHubFiles files = hub_.files("models/someone/Tiny-Distill");
  EXPECT_EQ(files.at("model.safetensors").content, read_file(at("pushed-sft/model.safetensors")));
  EXPECT_THAT(files.at("README.md").content, HasSubstr("base_model: Qwen/Qwen2.5-Math-7B"));
  write_file(root() / "problems.jsonl", R"({"problem": "1 + 1", "solution": "\\boxed{2}", "unique_id": "a"})");
  const CommandResult grpo =
      run_commands({"grpo", "--config", recipe("open_r1_push_grpo.yaml"), "--dataset_name", at("data/prompts.jsonl"),
                    "--output_dir", at("pushed-grpo"), "--max_completion_length", "8", "--max_steps", "2",
                    "--benchmarks", "math_500=" + at("problems.jsonl")});
  ASSERT_EQ(grpo.code, 0) << grpo.said;
  EXPECT_THAT(hub_.branches("models/Org/Tiny-GRPO"),
              testing::ElementsAre("main", "v01.00-step-000000001", "v01.00-step-000000002"));
  EXPECT_TRUE(is_file(at("pushed-grpo/benchmarks/checkpoint-2/results.json"))) << grpo.said;
  EXPECT_TRUE(hub_.files("models/Org/Tiny-GRPO").contains("README.md"));
}

TEST_F(PushingRecipes, NameInOneLineWhatTurnsPushingOff) {
  for (const std::string command : {"sft", "grpo"}) {
    const bool is_sft = command == "sft";
    std::vector<std::string> arguments{command,
                                       "--config",
                                       recipe(is_sft ? "open_r1_push_sft.yaml" : "open_r1_push_grpo.yaml"),
                                       "--dataset_name",
                                       at(is_sft ? "data/sft.jsonl" : "data/prompts.jsonl"),
                                       "--output_dir",
                                       at("unpushed"),
                                       "--benchmarks",
                                       "none",
                                       "--dry_run"};
    const CommandResult refused = run_commands(arguments);
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.said, HasSubstr(": push_to_hub: no token (set HF_TOKEN"));
    EXPECT_THAT(refused.said, HasSubstr(is_sft ? "; --push_to_hub false trains without pushing"
                                               : "; --push_to_hub false --callbacks none trains without pushing"));
    arguments.insert(arguments.end(), {"--push_to_hub", "false", "--callbacks", "none"});
    const CommandResult dry = run_commands(arguments);
    EXPECT_EQ(dry.code, 0) << dry.said;
    EXPECT_THAT(hub_.requests(), testing::IsEmpty());
  }
}

TEST_F(Recipes, AFlagTurnsOffWhatHoneDoesNotOffer) {
  const std::string off = "callbacks: false\nbenchmarks: no\npush_to_hub: false\n";
  write_file(root() / "eight.yaml", "fp16: true\nload_in_8bit: true\nneftune_noise_alpha: 5\n" + off);
  write_file(root() / "none.yaml", "fp16: false\nload_in_8bit: no\nneftune_noise_alpha: null\n" + off);
  const auto start = [&](const std::string& file, const std::vector<std::string>& flags) {
    std::vector<std::string> arguments{"sft",
                                       "--config",
                                       at(file),
                                       "--model_name_or_path",
                                       "Qwen/Qwen2.5-Math-7B",
                                       "--dataset_name",
                                       at("data/sft.jsonl"),
                                       "--output_dir",
                                       at("dry"),
                                       "--dry_run"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_commands(arguments);
  };
  const CommandResult refused = start("eight.yaml", {});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.said, HasSubstr("eight.yaml:1: fp16: float16 training is not offered, use bf16"));
  const CommandResult flags =
      start("eight.yaml", {"--fp16", "false", "--load_in_8bit=false", "--neftune_noise_alpha", "null"});
  EXPECT_EQ(flags.code, 0) << flags.said;
  EXPECT_EQ(start("eight.yaml", {"--no_fp16", "--no-load-in-8bit", "--neftune_noise_alpha=none"}).code, 0);
  EXPECT_EQ(start("none.yaml", {}).code, 0);
}

TEST_F(Recipes, TheModelsRevisionIsTaken) {
  for (const char* command : {"sft", "grpo"}) {
    const std::string data = at(command == std::string_view("sft") ? "data/sft.jsonl" : "data/prompts.jsonl");
    const auto dry_run = [&](const char* revision) {
      return run_commands({command, "--config", recipe((std::string(command) + ".yaml").c_str()), "--dataset_name",
                           data, "--output_dir", at("dry"), "--model_revision", revision, "--dry_run"});
    };
    EXPECT_EQ(dry_run("v2").code, 0);
    const CommandResult ended = dry_run("v3");
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.said, HasSubstr("snapshots/empty"));
  }
}

TEST_F(Recipes, AnAdapterRemembersTheRevisionOfItsBase) {
  const CommandResult ended =
      run_commands({"sft", "--config", recipe("sft.yaml"), "--dataset_name", at("data/sft.jsonl"), "--output_dir",
                    at("adapter"), "--model_revision", "v2", "--use_peft", "true", "--max_steps", "1"});
  ASSERT_EQ(ended.code, 0) << ended.said;
  EXPECT_THAT(read_file(at("adapter/adapter_config.json")), HasSubstr(R"("revision": "v2")"));
}

}  // namespace
}  // namespace hone::test
