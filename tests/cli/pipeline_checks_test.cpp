// Tests the checks of a pipeline before its first stage starts, and stages that fail before their first step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "support/miniature.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class PipelineChecks : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_miniature(folder_->path());
    const Ended ended = run_program(pretrain_arguments(
        folder_->path(), {"--max_steps", "2", "--per_device_train_batch_size", "2", "--output_dir", path("base")}));
    ASSERT_EQ(ended.code, 0) << ended.output;
    write_file(path("rewards.py"),
               "def good(completions, **kwargs):\n    return [len(c) for c in completions]\n"
               "def bad(completions, **kwargs):\n    return [c['text'] for c in completions]\n");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  [[nodiscard]] static std::string path(const std::string& relative) { return (folder_->path() / relative).string(); }

  // Runs a pipeline. Each element of `stages` is one line of the recipe, from line 4 on.
  static Ended run(const std::string& output, const std::vector<std::string>& stages,
                   const std::vector<std::string>& more = {}) {
    std::string recipe =
        "model_name_or_path: " + path("base") + "\ndataset_name: " + path("data/prompts.jsonl") + "\nstages:\n";
    for (const std::string& stage : stages) recipe += "  - {" + stage + "}\n";
    write_file(path("p.yaml"), recipe);
    std::vector<std::string> arguments{"pipeline", "--config", path("p.yaml"), "--output_dir", path(output)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }
  [[nodiscard]] static std::size_t begun(const std::string& output) {
    const std::string state = path(output + "/pipeline.json");
    return is_file(state) ? read_json(state)["stages"].size() : 0;
  }

  static std::string sft() {
    return "stage: sft, dataset_name: " + path("data/sft.jsonl") +
           ", max_steps: 1, per_device_train_batch_size: 2, save_strategy: no";
  }
  static std::string grpo(const std::string& more) {
    return "stage: grpo, max_steps: 1, num_generations: 2, per_device_train_batch_size: 4, max_completion_length: 4, "
           "save_strategy: no, " +
           more;
  }

  inline static std::unique_ptr<TemporaryDirectory> folder_;
};

TEST_F(PipelineChecks, AllProblemsOfAllStagesAreNamedBeforeTheFirstStarts) {
  const Ended ended =
      run("all", {sft(), grpo("reward_funcs: [length], learning_rat: 1e-3, max_grad_norm: much"),
                  grpo("name: second, reward_funcs: [" + path("rewards.py") + ":bad, " + path("rewards.py") +
                       ":none, format], num_iterations: 2, reward_weights: [1]"),
                  grpo("name: third, reward_funcs: [lenght], generation_batch_size: 6"),
                  "stage: rejection_sampling, dataset_name: " + path("gone.jsonl"),
                  "stage: sft, name: fifth, model_name_or_path: " + path("gone"), "stage: eval, task: gsm9k"});
  EXPECT_EQ(ended.code, 1);
  const std::string yaml = path("p.yaml");
  for (const std::string& problem : std::vector<std::string>{
           "hone: error: stage grpo: " + yaml + ":5: learning_rat: ",
           "hone: error: stage grpo: " + yaml + ":5: max_grad_norm: expected ",
           "hone: error: stage second: " + yaml + ":6: reward_weights: 1 weights for 3 rewards",
           "hone: error: stage second: the reward " + path("rewards.py") + ":none: it has no function none",
           "hone: error: stage second: the reward " + path("rewards.py") + ":bad: it raised TypeError",
           "hone: error: stage third: reward_funcs: no reward is called 'lenght' (did you mean 'length'?)",
           "hone: error: stage third: " + yaml + ":7: generation_batch_size: ",
           "hone: error: stage rejection_sampling: " + path("gone.jsonl"),
           "hone: error: stage fifth: '" + path("gone"),
           std::string("hone: error: stage eval: "),
       }) {
    EXPECT_THAT(ended.output, HasSubstr(problem));
  }
  EXPECT_THAT(ended.output, AllOf(HasSubstr(yaml + ": 10 problems, listed above; no stage was started\n"),
                                  Not(HasSubstr("stage sft:")), Not(HasSubstr("stage 1 of"))));
  EXPECT_EQ(begun("all"), 0u);
  EXPECT_FALSE(is_folder(path("all/01-sft")));
}

TEST_F(PipelineChecks, OneProblemIsTheError) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {grpo("reward_funcs: [" + path("rewards.py") + ":bad]"),
       "stage grpo: the reward " + path("rewards.py") + ":bad: it raised TypeError: string indices must be integers"},
      {grpo("reward_funcs: [format], generation_batch_size: 400"),
       "prompts.jsonl has 40 prompts, but one generation needs 200; no stage was started"},
      {grpo("reward_funcs: [format], dataset_prompt_column: gone"), "stage grpo: " + path("data/prompts.jsonl")},
      {grpo("reward_funcs: [format], eval_strategy: steps"), "stage grpo: eval_strategy: is steps, but "},
      {"stage: sft, dataset_name: " + path("data/prompts.jsonl") + ", dataset_prompt_column: gone",
       "has no usable row"},
      {"stage: pretrain, model_config_path: " + path("gone.json") + ", tokenizer_name_or_path: " + path("base"),
       "gone.json"},
      {"stage: generate, decontaminate: [" + path("gone.jsonl") + "]", "stage generate: "},
      {"stage: eval, dataset_name: [a, b]",
       "stage eval: dataset_name: expected one dataset per task, saw 2 datasets and 1 tasks"},
  };
  for (const auto& [stage, problem] : cases) {
    const Ended ended = run("one", {sft(), stage});
    EXPECT_EQ(ended.code, 1) << stage;
    EXPECT_THAT(ended.output, AllOf(HasSubstr(problem), HasSubstr("no stage was started\n"))) << stage;
    EXPECT_FALSE(is_folder(path("one/01-sft"))) << stage;
    EXPECT_EQ(run("one", {sft(), stage}, {"--dry_run"}).code, 1) << stage;
  }
}

TEST_F(PipelineChecks, AStageThatFailsBeforeItsFirstStepStartsAnewWithOtherKeys) {
  // The reward accepts the made-up completions of the check and fails on real ones, so that the stage fails later.
  write_file(path("picky.py"),
             "def picky(completions, **kwargs):\n    if 'made up' not in completions[0]: raise ValueError('no')\n"
             "    return [1.0] * len(completions)\n");
  const auto with_reward = [&](const std::string& reward) {
    return grpo("name: last, reward_funcs: [" + reward + "]");
  };
  const Ended failed = run("late", {sft(), with_reward(path("picky.py"))});
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.output, HasSubstr("hone: error: stage last: the reward "));
  EXPECT_EQ(begun("late"), 1u) << failed.output;
  EXPECT_FALSE(is_folder(path("late/02-last")));
  const Ended mended = run("late", {sft(), with_reward("format")});
  EXPECT_EQ(mended.code, 0) << mended.output;
  EXPECT_THAT(mended.output, HasSubstr("stage 1 of 2, sft: already done"));
  EXPECT_EQ(begun("late"), 2u);
  // A stage that is done cannot be changed.
  EXPECT_THAT(run("late", {sft(), with_reward("length")}).output, HasSubstr("began with other keys"));
}

TEST_F(PipelineChecks, AStageThatWasKilledBeforeItsFirstStepStartsAnewWithOtherKeys) {
  create_directories(path("killed/01-sft"));
  write_file(path("killed/01-sft/metrics.jsonl"), "");
  write_json(path("killed/pipeline.json"),
             {{"stages", Json::array({{{"name", "sft"}, {"status", "running"}, {"recipe", "max_steps: 7\n"}}})}});
  EXPECT_EQ(run("killed", {sft()}, {"--dry_run"}).code, 0);
  EXPECT_EQ(run("killed", {sft()}).code, 0);
  EXPECT_EQ(begun("killed"), 1u);

  create_directories(path("going/01-sft/checkpoint-1"));
  write_json(path("going/pipeline.json"),
             {{"stages", Json::array({{{"name", "sft"}, {"status", "running"}, {"recipe", "max_steps: 7\n"}}})}});
  const Ended refused = run("going", {sft()});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("began with other keys"));
  EXPECT_TRUE(is_folder(path("going/01-sft/checkpoint-1")));
  // --from deletes nothing if the stages cannot run.
  EXPECT_EQ(run("going", {"stage: sft, dataset_name: " + path("gone.jsonl")}, {"--from", "sft"}).code, 1);
  EXPECT_TRUE(is_folder(path("going/01-sft/checkpoint-1")));
  EXPECT_EQ(run("going", {sft()}, {"--from", "sft"}).code, 0);
}

}  // namespace
}  // namespace hone::test
