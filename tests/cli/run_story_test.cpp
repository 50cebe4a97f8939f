// Tests complete runs of hone grpo: rewards that fail, and runs that are started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "support/miniature.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class RunStory : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_miniature(folder_->path());
    const Ended ended = run_program(pretrain_arguments(
        folder_->path(), {"--max_steps", "2", "--per_device_train_batch_size", "2", "--output_dir", path("model")}));
    ASSERT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(ended.output,
                ContainsRegex("hone: pretrain: a new model of .*model.json \\([0-9,]+ parameters in f32\\), "
                              ".*corpus.jsonl \\([0-9,]+ documents, [0-9,]+ tokens\\), 2 steps of at most "
                              "[0-9,]+ tokens, .* on (CPU|GPU: [^,]*), output in .*/model\n"));
  }
  static void TearDownTestSuite() { folder_.reset(); }

  [[nodiscard]] static std::string path(const std::string& relative) { return (folder_->path() / relative).string(); }

  static Ended grpo(const std::string& output, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"grpo",
                                       "--model_name_or_path",
                                       path("model"),
                                       "--dataset_name",
                                       path("data/prompts.jsonl"),
                                       "--num_generations",
                                       "4",
                                       "--per_device_train_batch_size",
                                       "8",
                                       "--max_completion_length",
                                       "8",
                                       "--logging_steps",
                                       "1",
                                       "--learning_rate",
                                       "1e-3",
                                       "--max_steps",
                                       "5",
                                       "--save_strategy",
                                       "no",
                                       "--output_dir",
                                       path(output)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  inline static std::unique_ptr<TemporaryDirectory> folder_;
};

TEST_F(RunStory, AFailingRewardSavesTheRunWhichGoesOnBitForBit) {
  write_file(path("rewards.py"),
             "import os\n"
             "def spaces(completions, trainer_state, answer, **kwargs):\n"
             "    if trainer_state.global_step == 3 and os.path.exists('" +
                 path("broken") +
                 "'):\n        raise KeyError('no \\x1b[31m')\n"
                 "    return [c.count(' ') - 0.01 * len(c) + 0.1 * len(a) for c, a in zip(completions, answer)]\n");
  const std::vector<std::string> reward{"--reward_funcs", "format," + path("rewards.py") + ":spaces"};
  const Ended whole = grpo("whole", reward);
  ASSERT_EQ(whole.code, 0) << whole.output;
  EXPECT_THAT(whole.output,
              AllOf(HasSubstr("hone: grpo: " + path("model") + " ("),
                    HasSubstr("prompts.jsonl (40 prompts), 5 steps, 2 prompts x 4 completions"),
                    HasSubstr("| rewards/spaces/mean "), HasSubstr("| completions/mean_length "),
                    ContainsRegex("hone: grpo: wrote .*/whole after 5 steps in [0-9]+s, [0-9,]+ tokens\n")));

  write_file(path("broken"), "");
  const Ended failed = grpo("failed", reward);
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(
      failed.output,
      AllOf(HasSubstr("  | Traceback (most recent call last):\n"), HasSubstr("hone: saved step 3 in "),
            testing::EndsWith("rewards.py:spaces: it raised KeyError: 'no \\x1b[31m'\n"), Not(HasSubstr("\x1b"))));
  remove_path(path("broken"));
  const Ended rest = grpo("failed", reward);
  EXPECT_EQ(rest.code, 0) << rest.output;
  EXPECT_THAT(rest.output, AllOf(HasSubstr("at step 3\n"), Not(HasSubstr("other keys"))));
  EXPECT_EQ(read_file(path("failed/model.safetensors")), read_file(path("whole/model.safetensors")));
}

TEST_F(RunStory, ARewardThatFailsOnTheFirstPromptEndsTheRunBeforeItBegins) {
  write_file(path("broken.py"), "def reward(completions, gold, **kwargs):\n    return [0] * len(completions)\n");
  for (const bool dry : {false, true}) {
    const Ended ended = grpo("never", {"--reward_funcs", path("broken.py"), dry ? "--dry_run" : "--seed=42"});
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.output, HasSubstr("broken.py: its parameter gold is not a column of the data (columns: answer"));
    EXPECT_THAT(ended.output, HasSubstr("it was tried on the first prompt with made-up completions"));
    EXPECT_FALSE(is_file(path("never/metrics.jsonl")));
  }
}

TEST_F(RunStory, GenerationTriesItsRewardsBeforeItGenerates) {
  write_file(path("late.py"), "def reward(completions, gold, **kwargs):\n    return [0] * len(completions)\n");
  const Ended ended =
      run_program({"generate", "--model_name_or_path", path("model"), "--dataset_name", path("data/prompts.jsonl"),
                   "--reward_funcs", path("late.py"), "--max_new_tokens", "4", "--output_dir", path("generated")});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("its parameter gold is not a column of the data"));
  EXPECT_FALSE(is_file(path("generated/generations.jsonl"))) << "the error came before any generation";
}

}  // namespace
}  // namespace hone::test
