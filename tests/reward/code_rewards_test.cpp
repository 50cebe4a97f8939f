// Tests the rewards for programs: which program runs, how outputs are compared, and when there is no score.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "reward/judging/judge_code.h"
#include "reward/judging/outputs.h"
#include "reward/registry.h"
#include "reward/reward_flags.h"
#include "sandbox/runner.h"
#include "support/paths.h"
#include "support/sandbox.h"

namespace hone {
namespace {

RewardScores scores(const std::string& name, const std::vector<std::string>& completions, const Json& row,
                    const RewardOptions& options = {}) {
  RewardRegistry registry;
  register_all_reward(registry);
  std::vector<RewardInput> batch;
  for (const std::string& completion : completions) batch.push_back({.completion = completion, .row = &row});
  return registry.make(name, options).score(batch);
}

std::string block(const std::string& code, const std::string& language = "python") {
  return "Here it is:\n```" + language + "\n" + code + "\n```\n";
}

Json row_with(const Json& cases) { return {{"verification_info", {{"language", "python"}, {"test_cases", cases}}}}; }

const Json& doubling() {
  static const Json row = row_with({{{"input", "1\n"}, {"output", "2\n"}},
                                    {{"input", "2\n"}, {"output", "4\n"}},
                                    {{"input", "3\n"}, {"output", "6"}},
                                    {{"input", "-1\n"}, {"output", "-2"}}});
  return row;
}

TEST(CodeRewards, the_share_of_cases_counts) {
  SKIP_WITHOUT_SANDBOX();
  const std::vector<std::string> completions = {
      block("print(2 * int(input()))"),
      block("n = int(input())\nprint(2 * n if n < 3 else 'no')"),  // three of four
      block("n = int(input())\nprint(2 * n)\nassert n != 2"),      // a failing status fails its case only
      block("print(0)") + block("import sys; print(2 * int(sys.stdin.read()))"),  // the last block counts
      block("print(2 * int(input()))") + block("print(0)"),
      block("print(2 * int(input("),  // not valid Python
      "no program at all",
      block("print(2 * int(input()))", "cpp"),
  };
  const RewardScores expected = {1.0, 0.75, 0.75, 1.0, 0.0, 0.0, 0.0, 0.0};
  EXPECT_EQ(scores("code", completions, doubling()), expected);
  const RewardScores binary = {1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0};
  EXPECT_EQ(scores("binary_code", completions, doubling()), binary);
}

TEST(CodeRewards, hostile_programs_score_nothing) {
  SKIP_WITHOUT_SANDBOX();
  const Json row = row_with({{{"input", ""}, {"output", "ok"}}});
  const std::vector<std::string> completions = {
      block("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"),
      block("while True: print('ok')"),
      block("x = bytearray(10 << 30)\nprint('ok')"),
      block("import os, time\nif os.fork() == 0: time.sleep(1000)\nos.wait()\nprint('ok')"),
      block("import os\nfor f, _, n in os.walk('/root'): print('ok'); break"),
      block("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time; time.sleep(100)\nprint('ok')"),
      block("print('ok')"),  // the judge still works
  };
  const RewardScores expected = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0};
  EXPECT_EQ(scores("code", completions, row), expected);
}

TEST(CodeRewards, without_a_sandbox_they_run_when_told) {
  RewardOptions options;
  options.sandbox = SandboxMode::kNone;
  EXPECT_EQ(scores("code", {block("print(2 * int(input()))")}, doubling(), options), RewardScores{1.0});
}

TEST(CodeRewards, a_row_without_cases_is_no_verdict_and_a_wrong_row_an_error) {
  RewardOptions options;
  options.sandbox = SandboxMode::kNone;
  const std::vector<std::string> one = {block("print(1)")};
  EXPECT_EQ(scores("code", one, row_with(Json::array()), options), RewardScores{std::nullopt});
  EXPECT_EQ(scores("binary_code", one, row_with(Json::array()), options), RewardScores{std::nullopt});
  const Json as_text = {{"verification_info", R"({"test_cases": [{"input": "", "output": "1"}]})"}};
  EXPECT_EQ(scores("code", one, as_text, options), RewardScores{1.0});
  for (const Json& row : {Json::object(), Json{{"verification_info", 3}}, Json{{"verification_info", "no json"}},
                          Json{{"verification_info", {{"test_cases", 3}}}}, row_with({{{"input", "1"}}}),
                          row_with({{{"input", 1}, {"output", "1"}}}), row_with({3}),
                          Json{{"verification_info", {{"language", "rust"}, {"test_cases", Json::array()}}}}}) {
    EXPECT_THROW((void)scores("code", one, row, options), Error) << row.dump();
  }
}

TEST(CodeRewards, the_last_block_that_closes_counts) {
  EXPECT_EQ(last_code_block("```python\na\n``` ```python\nb\n```", "python"), "b\n");
  EXPECT_EQ(last_code_block("```python\na\n``` ```python\nb\n", "python"), "a\n");
  EXPECT_EQ(last_code_block("```python\n```", "python"), "");
  EXPECT_EQ(last_code_block("```python3\na\n```", "python"), std::nullopt);
  EXPECT_EQ(last_code_block("```\na\n```", "python"), std::nullopt);
  EXPECT_EQ(last_code_block("", "python"), std::nullopt);
  // A fence belongs to one match only, as in re.findall.
  EXPECT_EQ(last_code_block("```python\na```python\nb\n```", "python"), "a");
}

TEST(CodeRewards, outputs_are_compared_by_stripped_lines) {
  EXPECT_TRUE(same_output("1\n2\n", "1\n2"));
  EXPECT_TRUE(same_output("\n 1  \r\n\t2\n\n", "1\n2"));
  EXPECT_TRUE(same_output("1\n\n2", "1\n\n2"));
  EXPECT_TRUE(same_output("", " \n"));
  EXPECT_FALSE(same_output("1\n\n2", "1\n2"));
  EXPECT_FALSE(same_output("1", "1\n2"));
  EXPECT_FALSE(same_output("1\n2", "1"));
  EXPECT_FALSE(same_output("1 2", "1  2"));
  EXPECT_FALSE(same_output("", "1"));
}

TEST(CodeRewards, agree_with_open_r1) {
  SKIP_WITHOUT_SANDBOX();
  const Json fixture = read_json(test::fixture("reward/code_rewards.json"))["code"];
  std::vector<std::string> completions;
  std::vector<Json> rows;
  for (const Json& one : fixture) {
    completions.push_back(one["completion"].get<std::string>());
    rows.push_back(row_with(one["test_cases"]));
  }
  std::vector<RewardInput> batch;
  for (std::size_t i = 0; i < rows.size(); ++i) batch.push_back({.completion = completions[i], .row = &rows[i]});
  ASSERT_GE(batch.size(), 30u);
  RewardRegistry registry;
  register_all_reward(registry);
  const RewardScores shares = registry.make("code", {}).score(batch);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(shares[i], fixture[i]["code"].get<double>()) << completions[i];
    EXPECT_EQ(*shares[i] > 0.99 ? 1.0 : 0.0, fixture[i]["binary_code"].get<double>()) << completions[i];
  }
}

TEST(CodeRewards, code_format_agrees_with_open_r1) {
  const Json fixture = read_json(test::fixture("reward/code_rewards.json"))["code_format"];
  std::size_t formatted = 0;
  for (const Json& one : fixture) {
    const RewardScores judged =
        scores("code_format", {one["text"].get<std::string>()}, {{"language", one["language"]}});
    EXPECT_EQ(judged[0], one["code_format"].get<double>()) << one.dump();
    formatted += one["code_format"].get<double>() == 1.0 ? 1 : 0;
  }
  EXPECT_GE(formatted, 30u);
  EXPECT_GE(fixture.size() - formatted, 30u);
}

// The expected values are those of open-r1's pattern in Python's re.
TEST(CodeRewards, code_format_wants_a_block_within_the_answer) {
  const auto score = [](const std::string& text, const Json& row = Json::object(), const RewardOptions& options = {}) {
    return scores("code_format", {text}, row, options).at(0).value();
  };
  const std::string head = "<think>\nx\n</think>\n<answer>\n";
  EXPECT_EQ(score(head + "```python\na\n```\n</answer>"), 1.0);
  EXPECT_EQ(score(head + "first ```python a``` then\n</answer>\nmore"), 1.0);
  EXPECT_EQ(score(head + "```python3\na\n```\n</answer>"), 1.0);
  EXPECT_EQ(score(head + "```cpp\na\n```\n</answer>"), 0.0);
  EXPECT_EQ(score(head + "```python\na\n</answer>"), 0.0);
  EXPECT_EQ(score(head + "```python\na\n```</answer>"), 0.0);
  EXPECT_EQ(score(head + "```python\na\n```\n</answer>."), 0.0);
  EXPECT_EQ(score("<think>\n```python\na\n```\n</think>\n<answer>\nx\n</answer>"), 0.0);
  EXPECT_EQ(score(" " + head + "```python\na\n```\n</answer>"), 0.0);
  EXPECT_EQ(score(head + "```cpp\na\n```\n</answer>", {{"language", "cpp"}}), 1.0);
  EXPECT_EQ(score(head + "```cpp\na\n```\n</answer>", Json::object(), test::with_keys({"--code_language=cpp"})), 1.0);
  EXPECT_EQ(
      score(head + "```cpp\na\n```\n</answer>", {{"language", "python"}}, test::with_keys({"--code_language=cpp"})),
      0.0);
  EXPECT_EQ(score("x\n</think>\n<answer>\n```python\na\n```\n</answer>"), 0.0);
  EXPECT_EQ(score("x\n</think>\n<answer>\n```python\na\n```\n</answer>", Json::object(), {.think_prefilled = true}),
            1.0);
  EXPECT_THROW((void)score("x", {{"language", 3}}), Error);
}

}  // namespace
}  // namespace hone
