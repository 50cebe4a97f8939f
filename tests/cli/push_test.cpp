// Tests runs that push to the hub, and their behaviour when the hub refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/environment.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "support/small_hub.h"
#include "train/metrics.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kSecret = "hf_mostSecretToken";

bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

std::vector<std::string> with(std::vector<std::string> first, const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

class PushRuns : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_miniature(folder_->path());
  }
  static void TearDownTestSuite() { folder_.reset(); }
  PushRuns() {
    hub_.need_token(kSecret);
    fs::remove_all(at("out"));
    fs::remove_all(at("hf"));
  }

  [[nodiscard]] static std::string at(const std::string& relative) { return (folder_->path() / relative).string(); }
  // Command line of a run of three steps with a checkpoint after each, followed by `more`.
  [[nodiscard]] static std::vector<std::string> train(const std::vector<std::string>& more) {
    return pretrain_arguments(folder_->path(),
                              with({"--max_steps", "3", "--save_steps", "1", "--output_dir", at("out")}, more));
  }
  [[nodiscard]] Environment environment(const std::optional<std::string>& token = kSecret) const {
    return Environment(hub_.variables(at("hf"), token));
  }
  // Runs the program to its end and checks that neither its output nor its files contain the token.
  static Ended run(const std::vector<std::string>& arguments) {
    Ended ended = run_program(arguments);
    EXPECT_THAT(ended.output, Not(HasSubstr(kSecret)));
    if (is_folder(at("out"))) {
      for (const auto& entry : fs::recursive_directory_iterator(at("out"))) {
        if (!entry.is_regular_file()) continue;
        EXPECT_THAT(read_file(entry.path()), Not(HasSubstr(kSecret))) << entry.path();
      }
    }
    return ended;
  }
  static std::string error_line(const Ended& ended) {
    const std::size_t at = ended.output.find("hone: error: ");
    return at == std::string::npos ? "" : ended.output.substr(at, ended.output.find('\n', at) - at);
  }

  SmallHub hub_;
  inline static std::unique_ptr<TemporaryDirectory> folder_;
};

TEST_F(PushRuns, EachSaveAndTheTrainedModelArrive) {
  const Environment variables = environment();
  const Ended ended =
      run(train({"--push_to_hub", "--hub_model_id", "Org/Tiny", "--hub_always_push", "--hub_private_repo", "true"}));
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(hub_.messages(), ElementsAre("Training in progress, step 1", "Training in progress, step 2",
                                           "Training in progress, step 3", "End of training"));
  EXPECT_EQ(hub_.is_private("models/Org/Tiny"), true);
  EXPECT_FALSE(hub_.storage_saw_token());
  const SmallHubFiles files = hub_.files("models/Org/Tiny");
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl", "README.md"}) {
    ASSERT_TRUE(files.contains(name)) << name;
    EXPECT_EQ(files.at(name).content, read_file(at("out/" + std::string(name)))) << name;
  }
  for (const auto& [name, file] : files) {
    EXPECT_THAT(name,
                AllOf(Not(HasSubstr("optimizer")), Not(HasSubstr("training_state")), Not(HasSubstr("checkpoint"))));
  }
  EXPECT_THAT(files.at("README.md").content,
              AllOf(HasSubstr("library_name: transformers"), HasSubstr("- hone"), HasSubstr("# Tiny"),
                    HasSubstr("hone pretrain"), HasSubstr("corpus.jsonl"), HasSubstr("block_size: 64"),
                    Not(HasSubstr(folder_->path().string()))));
  // hone can download the pushed model and read it.
  const Ended scored = run({"convert", "Org/Tiny", "--output_dir", at("again")});
  ASSERT_EQ(scored.code, 0) << scored.output;
  EXPECT_EQ(read_file(at("again/model.safetensors")), read_file(at("out/model.safetensors")));
}

TEST_F(PushRuns, ARepositoryWithoutAnOwnerIsTheTokensAndNamedByTheFolder) {
  const Environment variables = environment(std::nullopt);
  const Ended ended = run(train({"--push_to_hub", "--hub_strategy", "end", "--hub_token", kSecret}));
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(hub_.messages(), ElementsAre("End of training"));
  EXPECT_TRUE(hub_.files("models/someone/out").contains("model.safetensors"));
}

TEST_F(PushRuns, StrategiesWithState) {
  const Environment variables = environment();
  for (const std::string strategy : {"checkpoint", "all_checkpoints"}) {
    const Ended ended = run(train({"--push_to_hub", "--hub_model_id", "Org/" + strategy, "--hub_always_push",
                                   "--hub_strategy", strategy, "--save_total_limit", "1", "--overwrite_output_dir"}));
    ASSERT_EQ(ended.code, 0) << ended.output;
    const SmallHubFiles files = hub_.files("models/Org/" + strategy);
    const std::string last = strategy == "checkpoint" ? "last-checkpoint/" : "checkpoint-3/";
    for (const char* name : {"optimizer.safetensors", "training_state.json", "model.safetensors"}) {
      ASSERT_TRUE(files.contains(last + name)) << strategy << " " << name;
      EXPECT_EQ(files.at(last + name).content, read_file(at("out/checkpoint-3/" + std::string(name))));
    }
    // save_total_limit may have deleted checkpoint-1 while it was waiting to be pushed; it must be pushed nevertheless.
    EXPECT_EQ(files.contains("checkpoint-1/optimizer.safetensors"), strategy == "all_checkpoints");
  }
}

TEST_F(PushRuns, TheCallbackPushesEachCheckpointToABranch) {
  const Environment variables = environment();
  write_file(at("recipe.yaml"),
             "callbacks:\n- push_to_hub_revision\nhub_model_id: Org/Tiny\nhub_model_revision: v01.00\n"
             "push_to_hub: true\nhub_strategy: end\n");
  const Ended ended = run(with(train({}), {"--config", at("recipe.yaml")}));
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(hub_.branches("models/Org/Tiny"),
              ElementsAre("main", "v01.00-step-000000001", "v01.00-step-000000002", "v01.00-step-000000003"));
  const SmallHubFiles files = hub_.files("models/Org/Tiny", "v01.00-step-000000002");
  EXPECT_EQ(files.at("model.safetensors").content, read_file(at("out/checkpoint-2/model.safetensors")));
  EXPECT_TRUE(files.contains("README.md"));
  EXPECT_FALSE(files.contains("optimizer.safetensors"));
  EXPECT_THAT(hub_.messages(), Contains("Add v01.00-step-000000002 checkpoint"));
}

TEST_F(PushRuns, ARevisionThatHoldsAModelIsNotOverwrittenUnasked) {
  const Environment variables = environment();
  const std::vector<std::string> arguments = train(
      {"--push_to_hub_revision", "--hub_model_id", "Org/Tiny", "--hub_model_revision", "v2", "--overwrite_output_dir"});
  ASSERT_EQ(run(arguments).code, 0);
  EXPECT_TRUE(hub_.files("models/Org/Tiny", "v2").contains("README.md"));
  EXPECT_EQ(hub_.is_private("models/Org/Tiny"), true);  // open-r1 creates private repositories
  const Ended again = run(arguments);
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(error_line(again), AllOf(HasSubstr("the branch v2 of Org/Tiny holds a model already"),
                                       HasSubstr("--overwrite_hub_revision")));
  EXPECT_EQ(run(with(arguments, {"--overwrite_hub_revision"})).code, 0);
}

TEST_F(PushRuns, WithoutATokenOneLineBeforeTraining) {
  const Environment variables = environment(std::nullopt);
  write_file(at("recipe.yaml"), "push_to_hub: true\nhub_model_id: Org/Tiny\n");
  const std::vector<std::string> arguments = with(train({}), {"--config", at("recipe.yaml")});
  const Ended ended = run(arguments);
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(
      error_line(ended),
      "hone: error: " + at("recipe.yaml") +
          ":1: push_to_hub: no token (set HF_TOKEN or hub_token, or run `huggingface-cli login`; "
          "--push_to_hub false trains without pushing, --hub_required false trains and tries again at each push)");
  EXPECT_FALSE(fs::exists(at("out")));
  EXPECT_THAT(hub_.requests(), IsEmpty());
  EXPECT_EQ(run(with(arguments, {"--push_to_hub", "false"})).code, 0);
  fs::remove_all(at("out"));
  const Ended goes_on = run(with(arguments, {"--hub_required", "false"}));
  EXPECT_EQ(goes_on.code, 0) << goes_on.output;
  EXPECT_THAT(goes_on.output,
              AllOf(HasSubstr("push_to_hub: no token"), HasSubstr("the run continues, and each push tries again"),
                    HasSubstr("the push of step 1 failed"),
                    HasSubstr("later: hone push " + at("out/checkpoint-1") + " Org/Tiny"),
                    HasSubstr("the push of the trained model failed, but it is saved")));
  EXPECT_TRUE(fs::exists(at("out/model.safetensors")));
}

TEST_F(PushRuns, WhatElseStopsARunBeforeItStarts) {
  const Environment variables = environment("hf_aTokenOfNobody");
  const std::vector<std::string> arguments = train({"--push_to_hub", "--hub_model_id", "Org/Tiny"});
  EXPECT_THAT(error_line(run(arguments)), HasSubstr("--push_to_hub: the hub refuses to take the token (401)"));
  {
    const Environment offline(Variables{{"HF_HUB_OFFLINE", "1"}});
    EXPECT_THAT(error_line(run(arguments)), HasSubstr("--push_to_hub: HF_HUB_OFFLINE is set"));
  }
  {
    const Environment nowhere(Variables{{"HF_ENDPOINT", "http://127.0.0.1:1"}});
    EXPECT_THAT(error_line(run(arguments)),
                AllOf(HasSubstr("--push_to_hub: no answer from http://127.0.0.1:1"), HasSubstr("--push_to_hub false")));
  }
  EXPECT_THAT(
      error_line(run(train({"--callbacks", "push_to_hub_revison"}))),
      HasSubstr("--callbacks: no callback is called 'push_to_hub_revison' (did you mean push_to_hub_revision?)"));
  EXPECT_THAT(error_line(run(train({"--push_to_hub", "--hub_model_id", "a b"}))),
              HasSubstr("--hub_model_id: 'a b' cannot be the name of a repository on the hub"));
  EXPECT_FALSE(fs::exists(at("out")));
}

TEST_F(PushRuns, ADryRunChecksTheTokenAndMakesNothing) {
  const Environment variables = environment();
  const Ended ended = run(train({"--push_to_hub", "--hub_model_id", "Org/Tiny", "--dry_run"}));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(hub_.requests(), ElementsAre("GET /api/whoami-v2"));
}

TEST_F(PushRuns, ARefusedPushLosesNothingAndIsMadeLater) {
  const Environment variables = environment();
  hub_.fail("/commit/", "403 Forbidden", 4, R"({"error": "Storage limit"})");
  const Ended ended = run(train({"--push_to_hub", "--hub_model_id", "Org/Tiny", "--hub_always_push"}));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output,
              HasSubstr("hone: warning: the push of step 1 failed: 'Org/Tiny': the hub refuses to commit to "
                        "main (403): Storage limit"));
  EXPECT_THAT(error_line(ended), AllOf(HasSubstr("the push of the trained model failed, but it is saved"),
                                       HasSubstr("later: hone push " + at("out") + " Org/Tiny")));
  for (const char* left : {"out/model.safetensors", "out/checkpoint-1", "out/checkpoint-3"}) {
    EXPECT_TRUE(fs::exists(at(left))) << left;
  }
  hub_.forget_requests();
  const Ended later = run({"push", at("out"), "Org/Tiny"});
  EXPECT_EQ(later.code, 0) << later.output;
  EXPECT_THAT(hub_.requests(),
              Not(Contains(HasSubstr("PUT storage"))));  // the failed push had already uploaded the large files
  EXPECT_EQ(hub_.files("models/Org/Tiny").at("model.safetensors").content, read_file(at("out/model.safetensors")));
}

TEST_F(PushRuns, ASaveDuringAPushIsSkippedAndSaid) {
  const Environment variables = environment();
  for (const bool always : {false, true}) {
    SmallHub fresh;
    const Environment endpoint(Variables{{"HF_ENDPOINT", fresh.endpoint()}});
    fresh.holds_uploads = true;
    fs::remove_all(at("out"));
    const fs::path log = folder_->path() / (always ? "log-always" : "log");
    const pid_t child = start_program(
        train({"--push_to_hub", "--hub_model_id", "Org/Tiny", "--hub_always_push", always ? "true" : "false"}), log);
    while (!fs::exists(at("out/checkpoint-3")) && !has_ended(child)) std::this_thread::yield();
    fresh.release_uploads();
    ASSERT_EQ(wait_for(child), 0) << read_file(log);
    const std::string line = "step 2 is not pushed: the push of step 1 is still under way (hub_always_push: true";
    EXPECT_THAT(read_file(log), always ? Not(HasSubstr(line)) : testing::Matcher<std::string>(HasSubstr(line)));
    EXPECT_EQ(std::ranges::count(fresh.messages(), "Training in progress, step 2"), always ? 1 : 0);
    EXPECT_THAT(fresh.messages(), Contains("End of training"));
  }
}

// Ctrl+C interrupts a push during training or at its end: the saved files stay, and the message says how to push them.
TEST_F(PushRuns, AnInterruptedPushLosesNothing) {
  const Environment variables = environment();
  for (const bool at_end : {false, true}) {
    SmallHub fresh;
    const Environment endpoint(Variables{{"HF_ENDPOINT", fresh.endpoint()}});
    fresh.holds_uploads = true;
    fs::remove_all(at("out"));
    const fs::path log = folder_->path() / (at_end ? "log-end" : "log-steps");
    const pid_t child =
        start_program(train({"--push_to_hub", "--hub_model_id", "Org/Tiny", "--hub_strategy",
                             at_end ? "end" : "every_save", "--max_steps", at_end ? "3" : "20000", "--save_steps",
                             at_end ? "1" : "3", "--logging_steps", "20000", "--save_total_limit", "2"}),
                      log);
    const auto is_sending = [&] {
      return std::ranges::any_of(fresh.requests(), [](const std::string& line) { return line.starts_with("PUT "); });
    };
    while (!is_sending() && !has_ended(child)) std::this_thread::yield();
    ::kill(child, SIGINT);
    EXPECT_EQ(wait_for(child), 130) << read_file(log);
    fresh.release_uploads();
    const std::string title = at_end ? "the trained model" : "step 3";
    EXPECT_THAT(read_file(log), AllOf(HasSubstr("the push of " + title + " was interrupted"),
                                      HasSubstr("later: hone push " + at("out")), HasSubstr(" Org/Tiny)")));
    EXPECT_THAT(fresh.messages(), IsEmpty());
    const std::vector<std::string> saved = list_folder(at("out"));
    EXPECT_TRUE(std::ranges::any_of(saved, [](const auto& name) { return name.starts_with("checkpoint-"); }));
    EXPECT_EQ(is_file(at("out/model.safetensors")), at_end);
  }
}

TEST_F(PushRuns, BenchmarksScoreEachCheckpoint) {
  const Environment variables = environment();
  write_file(at("problems.jsonl"),
             "{\"problem\": \"1 + 1\", \"answer\": \"2\"}\n{\"problem\": \"2 + 3\", \"answer\": \"5\"}\n");
  const Ended ended = run(train({"--save_steps", "2", "--config_overrides", "max_position_embeddings=512",
                                 "--benchmarks", "jsonl=" + at("problems.jsonl")}));
  ASSERT_EQ(ended.code, 0) << ended.output;
  for (const std::int64_t step : {2, 3}) {
    const fs::path folder = at(text_of("out/benchmarks/checkpoint-", step));
    ASSERT_TRUE(fs::exists(folder)) << ended.output;
    const Json results = read_json(folder / "results.json");
    EXPECT_EQ(results.at("tasks").at("jsonl").at("problems"), 2);
    EXPECT_EQ(split(read_file(folder / "samples.jsonl"), '\n').size(), 3u);  // two samples and the empty string
    // hone eval gives the same samples for the same weights.
    const Ended eval = run({"eval", at(text_of("out/checkpoint-", step)), "--dataset_name", at("problems.jsonl"),
                            "--output_dir", at("eval")});
    ASSERT_EQ(eval.code, 0) << eval.output;
    EXPECT_EQ(read_file(at("eval/samples.jsonl")), read_file(folder / "samples.jsonl"));
    const std::vector<MetricRow> rows = read_metrics(at("out/metrics.jsonl"));
    EXPECT_TRUE(std::ranges::any_of(
        rows, [&](const MetricRow& row) { return row.step == step && row.find("benchmarks/jsonl").has_value(); }));
  }
}

TEST_F(PushRuns, BenchmarksThatCannotBeReadStopARunBeforeItStarts) {
  const Environment variables = environment();
  const Environment offline(Variables{{"HF_HUB_OFFLINE", "1"}});
  EXPECT_THAT(error_line(run(train({"--benchmarks", "aime24"}))),
              AllOf(HasSubstr("hone: error: --benchmarks: "), HasSubstr("HF_HUB_OFFLINE"),
                    HasSubstr("--benchmarks none trains without")));
  EXPECT_THAT(error_line(run(train({"--benchmarks", "aime42"}))), HasSubstr("no task is called 'aime42'"));
  EXPECT_FALSE(fs::exists(at("out")));
}

TEST_F(PushRuns, PushTakesAFolderAndAName) {
  const Environment variables = environment();
  EXPECT_THAT(error_line(run({"push"})), HasSubstr("expected a folder and a repository, saw 0 arguments"));
  EXPECT_THAT(error_line(run({"push", at("nowhere"), "Org/X"})), HasSubstr("is not a folder"));
  EXPECT_THAT(error_line(run({"push", at("tokenizer"), "a b"})), HasSubstr("is not a valid repository name"));
  const std::vector<std::string> push{"push", at("tokenizer"),    "Org/Words", "--hub_revision",
                                      "v1",   "--commit_message", "Words"};
  const Ended ended = run(push);
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(hub_.messages(), ElementsAre("Words"));
  EXPECT_EQ(hub_.files("models/Org/Words", "v1").at("tokenizer.json").content,
            read_file(at("tokenizer/tokenizer.json")));
  hub_.names_checksums = true;
  EXPECT_THAT(run(push).output, HasSubstr("already has all"));
  EXPECT_THAT(hub_.messages(), ElementsAre("Words"));
}

}  // namespace
}  // namespace hone::test
