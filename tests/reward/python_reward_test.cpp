// Tests reward functions in Python: their arguments, their results and their failures.
#include "reward/user/python_reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "reward/user/user_reward.h"
#include "support/paths.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr milliseconds kPatience{120'000};

class PythonFunction : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    const fs::path path = folder_.path() / name;
    std::ofstream(path) << content;
    return path.string();
  }
  // Judges a batch of three completions of two prompts, which are messages if `conversation`.
  static RewardScores judge(const Reward& reward, bool conversation = false) {
    const std::vector<Json> rows{{{"prompt", "p"}, {"answer", "4\n2"}, {"level", 3}}, {{"answer", "x"}}};
    const Json text = "What is 40 + 2?";
    const Json messages = Json::parse(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])");
    const std::vector<std::int32_t> ids{7, 8};
    std::vector<RewardInput> batch;
    for (std::size_t i = 0; i < 3; ++i) {
      batch.push_back({.completion = i == 1 ? "\"please\"\n\xff" : "no",
                       .row = &rows[i / 2],
                       .group = static_cast<std::int64_t>(i / 2),
                       .prompt = conversation ? &messages : &text,
                       .completion_ids = ids,
                       .progress = {.step = 5, .total_steps = 9, .epoch = 0.5}});
    }
    return reward.score(batch);
  }
  [[nodiscard]] RewardScores scores(const std::string& source, bool conversation = false) const {
    return judge(make_user_reward(write("rewards.py", source), kPatience), conversation);
  }
  struct Failed {
    std::string error;
    std::string shown;
  };
  [[nodiscard]] Failed failure(const std::string& source, milliseconds limit = kPatience) const {
    return failure_of(write("rewards.py", source), limit);
  }
  static Failed failure_of(const std::string& name, milliseconds limit = kPatience) {
    Failed failed{"accepted", {}};
    testing::internal::CaptureStderr();
    try {
      (void)judge(make_user_reward(name, limit));
    } catch (const Error& error) {
      failed.error = error.what();
    }
    failed.shown = testing::internal::GetCapturedStderr();
    return failed;
  }
  [[nodiscard]] const fs::path& folder() const { return folder_.path(); }

 private:
  test::TemporaryDirectory folder_;
};

TEST_F(PythonFunction, is_told_apart_from_programs_and_names) {
  for (const char* name : {"rewards.py", "./a/rewards.py:polite", "rewards.py:polite", "lib.rewards.polite"}) {
    EXPECT_TRUE(is_python_reward(name)) << name;
    EXPECT_TRUE(is_user_reward(name)) << name;
  }
  for (const char* name : {"accuracy", "./judge", "./judge.so", "judge.so", "rewards.py:", "rewards.py:a b", "a..b"}) {
    EXPECT_FALSE(is_python_reward(name)) << name;
  }
  const std::string path = write("judge.py", "#!/usr/bin/env python3\n");
  EXPECT_TRUE(is_python_reward(path));
  fs::permissions(path, fs::perms::owner_all);
  EXPECT_FALSE(is_python_reward(path));
  EXPECT_TRUE(is_python_reward(path + ":function"));
}

TEST_F(PythonFunction, gets_what_trl_passes) {
  const std::string kept = (folder() / "kept").string();
  const std::string source =
      "import json\n"
      "def reward(completions, **kwargs):\n"
      "    state = kwargs.pop('trainer_state')\n"
      "    kwargs['state'] = [state.global_step, state.max_steps, state.epoch]\n"
      "    json.dump({'completions': completions, **kwargs}, open('" +
      kept + "', 'w'))\n    return [0] * len(completions)\n";
  const auto passed = [&](bool conversation) {
    (void)scores(source, conversation);
    std::ifstream in(kept);
    return Json::parse(in);
  };
  const Json texts = passed(false);
  EXPECT_EQ(texts.at("completions"), (Json{"no", "\"please\"\n\xef\xbf\xbd", "no"}));
  EXPECT_EQ(texts.at("prompts"), Json(std::vector<std::string>(3, "What is 40 + 2?")));
  EXPECT_EQ(texts.at("completion_ids"), Json::parse("[[7, 8], [7, 8], [7, 8]]"));
  EXPECT_EQ(texts.at("answer"), (Json{"4\n2", "4\n2", "x"}));
  EXPECT_EQ(texts.at("level"), (Json{3, 3, nullptr}));
  EXPECT_EQ(texts.at("state"), (Json{5, 9, 0.5}));
  EXPECT_EQ(texts.size(), 6u) << "the column prompt must not be an argument: " << texts;
  const Json messages = passed(true);
  EXPECT_EQ(messages.at("completions")[0], Json::parse(R"([{"role": "assistant", "content": "no"}])"));
  EXPECT_EQ(messages.at("prompts")[2][1]["content"], "u");
}

TEST_F(PythonFunction, answers_numbers_and_none) {
  EXPECT_EQ(scores("def reward(completions, **kwargs):\n    return [1, None, -0.25]\n"),
            (RewardScores{1.0, std::nullopt, -0.25}));
  EXPECT_EQ(scores("def reward(completions):\n    return (len(c) > 2 for c in completions)\n"),
            (RewardScores{0.0, 1.0, 0.0}));
  EXPECT_EQ(scores("class Array:\n    def tolist(self): return [1.5, 2, 3]\n"
                   "def reward(completions, answer, level=None): return Array()\n"),
            (RewardScores{1.5, 2.0, 3.0}));
  EXPECT_EQ(scores("import asyncio\nasync def one(c):\n    await asyncio.sleep(0)\n    return len(c)\n"
                   "async def reward(completions, **kwargs):\n"
                   "    return await asyncio.gather(*[one(c) for c in completions])\n"),
            (RewardScores{2.0, 10.0, 2.0}));
}

TEST_F(PythonFunction, lives_from_batch_to_batch) {
  const Reward reward = make_user_reward(write("rewards.py",
                                               "seen = []\ndef reward(completions, **kwargs):\n    seen.append(1)\n"
                                               "    return [len(seen)] * len(completions)\n"),
                                         kPatience);
  EXPECT_EQ(reward.metric_name, "reward");
  EXPECT_EQ(judge(reward)[0], 1.0);
  EXPECT_EQ(judge(reward)[0], 2.0);
  EXPECT_EQ(reward.score({}), RewardScores{});
}

TEST_F(PythonFunction, what_it_prints_and_reads_is_no_answer) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(scores("import os, subprocess, sys\n"
                   "print('loading', flush=True)\n"
                   "def reward(completions, **kwargs):\n"
                   "    print('{\"scores\": [9, 9, 9]}')\n"
                   "    os.write(1, b'raw \\x1b[2J\\n')\n"
                   "    subprocess.run(['echo', 'from a child'])\n"
                   "    return [len(sys.stdin.read())] * 3\n"),
            (RewardScores{0.0, 0.0, 0.0}));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("rewards.py: loading\n"), HasSubstr("rewards.py: {\"scores\": [9, 9, 9]}\n"),
                          HasSubstr("rewards.py: raw \\x1b[2J\n"), HasSubstr("rewards.py: from a child\n")));
}

TEST_F(PythonFunction, much_goes_both_ways_at_once) {
  const Reward reward = make_user_reward(write("rewards.py",
                                               "def reward(completions, **kwargs):\n    print('x' * 3000000)\n"
                                               "    return [len(c) for c in completions]\n"),
                                         kPatience);
  const std::string text(5000, 'a');
  const std::vector<RewardInput> batch(2000, {.completion = text});
  testing::internal::CaptureStderr();
  EXPECT_EQ(reward.score(batch), RewardScores(2000, 5000.0));
  EXPECT_LT(testing::internal::GetCapturedStderr().size(), 100'000u);
}

TEST_F(PythonFunction, completions_of_a_prompt_share_nothing_that_can_be_changed) {
  const Reward reward =
      make_user_reward(write("rewards.py",
                             "def reward(completions, prompts, tests, **kwargs):\n"
                             "    for prompt, case in zip(prompts, tests):\n"
                             "        prompt.append(1)\n        case['seen'] += 1\n"
                             "    return [len(p) + 10 * t['seen'] for p, t in zip(prompts, tests)]\n"),
                       kPatience);
  const Json row{{"tests", {{"seen", 0}}}};
  const Json prompt = Json::parse(R"([{"role": "user", "content": "u"}])");
  EXPECT_EQ(reward.score(std::vector<RewardInput>(3, {.completion = "c", .row = &row, .prompt = &prompt})),
            RewardScores(3, 12.0));
}

TEST_F(PythonFunction, is_found_by_name) {
  const std::string source =
      "import lengths\n"
      "from lengths import imported\n"
      "def _hidden(completions): pass\n"
      "def other(texts): pass\n"
      "def first(completions, **kwargs): return [lengths.VALUE] * 3\n";
  (void)write("lengths.py", "VALUE = 4\ndef imported(completions): pass\n");
  EXPECT_EQ(scores(source), (RewardScores{4.0, 4.0, 4.0}));
  const std::string two = write("two.py", source + "def second(completions, **kwargs): return [2, 2, 2]\n");
  EXPECT_EQ(judge(make_user_reward(two + ":second", kPatience))[0], 2.0);
  EXPECT_EQ(make_user_reward(two + ":second", kPatience).metric_name, "second");
  EXPECT_THAT(failure_of(two).error, HasSubstr("the file has functions first, second: name one as FILE.py:FUNCTION"));
  EXPECT_THAT(failure_of(two + ":third").error, HasSubstr("it has no function third, but first, second"));
  EXPECT_THAT(failure_of((folder() / "none.py").string()).error, HasSubstr("there is no file "));
  EXPECT_THAT(failure("x = 1\n").error, HasSubstr("the file has no function with the parameter completions"));
  EXPECT_THAT(failure_of("hone_has.no_such.module").error, HasSubstr("it raised ModuleNotFoundError: No module named"));

  const fs::path before = fs::current_path();
  fs::current_path(folder());
  EXPECT_EQ(judge(make_user_reward("two.second", kPatience))[0], 2.0);
  EXPECT_EQ(judge(make_user_reward("two.py:second", kPatience))[0], 2.0);
  fs::current_path(before);
}

TEST_F(PythonFunction, fails_in_one_line_below_its_traceback) {
  const Failed raised = failure(
      "def deeper(text):\n    return 1 / 0\n"
      "def reward(completions, **kwargs):\n    print('\\x1b[31mred')\n    return [deeper(c) for c in completions]\n");
  EXPECT_THAT(raised.error, AllOf(testing::StartsWith("the reward "),
                                  testing::EndsWith("rewards.py: it raised ZeroDivisionError: division by zero")));
  EXPECT_THAT(raised.shown, AllOf(HasSubstr("  | \\x1b[31mred\n  | Traceback (most recent call last):\n"),
                                  HasSubstr("in deeper\n  |     return 1 / 0\n"), Not(HasSubstr("<string>"))));
  EXPECT_THAT(failure("def reward(completions, **kwargs):\n  raise ValueError('a\\x1bb\\nc')\n").error,
              Not(HasSubstr("\x1b")));
  const auto error = [&](const std::string& body) {
    return failure("import os, sys\ndef reward(completions, **kwargs):\n    " + body + "\n").error;
  };
  EXPECT_THAT(error("sys.exit(3)"), HasSubstr("it raised SystemExit: 3"));
  EXPECT_THAT(error("os._exit(3)"), HasSubstr("it exited with status 3"));
  EXPECT_THAT(error("os.abort()"), HasSubstr("it was killed by signal 6"));
  EXPECT_THAT(error("return [1, 2]"), HasSubstr("it returns 2 rewards for 3 completions"));
  EXPECT_THAT(error("return None"), HasSubstr("it returns NoneType: return a list of 3 numbers or None"));
  EXPECT_THAT(error("return 'abc'"), HasSubstr("it returns str"));
  EXPECT_THAT(error("return [1, float('nan'), 2]"), HasSubstr("completion 2 gets nan: return a finite number or None"));
  EXPECT_THAT(error("return [1, 2, float('inf')]"), HasSubstr("completion 3 gets inf"));
  EXPECT_THAT(error("return [1, 2, '3']"), HasSubstr("completion 3 gets '3'"));
  EXPECT_THAT(failure("def reward(completions, gold, **kwargs): return [1, 2, 3]\n").error,
              HasSubstr("its parameter gold is not a column of the data (columns: answer, level)"));
  const Failed syntax = failure("def reward(completions:\n");
  EXPECT_THAT(syntax.error, HasSubstr("it raised SyntaxError: "));
  EXPECT_THAT(syntax.shown, Not(HasSubstr("<frozen")));
}

TEST_F(PythonFunction, that_does_not_answer_is_asked_where_it_stands) {
  const std::string source = "import threading\ndef reward(completions, **kwargs):\n    threading.Event().wait()\n";
  Failed late = failure(source, milliseconds(500));
  EXPECT_THAT(late.error, HasSubstr("no answer within 0.5 s (reward_timeout sets the limit)"));
  // A busy machine may take longer to enter the function.
  for (int seconds = 1; seconds < 60 && late.shown.find("in reward") == std::string::npos; seconds *= 3) {
    late = failure(source, std::chrono::seconds(seconds));
  }
  EXPECT_THAT(late.shown, HasSubstr("in reward"));
}

TEST_F(PythonFunction, needs_an_interpreter) {
  const std::string path = write("rewards.py", "def reward(completions): return []\n");
  try {
    (void)make_python_reward(path, kPatience, "no-such-python");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), ("the reward " + path +
                                ": it needs no-such-python, which is not in PATH (install it, or use an executable or "
                                "a shared object)")
                                   .c_str());
  }
}

TEST_F(PythonFunction, the_documented_one_works) {
  std::ifstream in(test::source_dir() / "docs/rewards.md");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const std::size_t begin = text.find("def polite");
  ASSERT_NE(begin, std::string::npos);
  const std::string source = text.substr(begin, text.find("```", begin) - begin);
  const Reward reward = make_user_reward(write("rewards.py", source) + ":polite", kPatience);
  const Json row{{"answer", "4"}};
  EXPECT_EQ(reward.score(
                std::vector<RewardInput>{{.completion = "4, please", .row = &row}, {.completion = "4", .row = &row}}),
            (RewardScores{1.0, std::nullopt}));
}

}  // namespace
}  // namespace hone
