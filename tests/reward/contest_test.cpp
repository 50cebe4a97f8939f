// Compares ioi_code and cf_code, and the comparisons of their judges, with open-r1 (fixtures/reward/
// make_contest_rewards.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "reward/ioi_code/ioi_problem.h"
#include "reward/judging/contest.h"
#include "reward/judging/outputs.h"
#include "reward/registry.h"
#include "reward/reward_flags.h"
#include "sandbox/compiler.h"
#include "support/paths.h"
#include "support/sandbox.h"

namespace hone {
namespace {

const Json& fixture() {
  static const Json all = read_json(test::fixture("reward/contest_rewards.json"));
  return all;
}

RewardScores contest_scores(const std::string& name, const std::vector<std::string>& completions,
                            const std::vector<Json>& rows, const RewardOptions& options = {}) {
  RewardRegistry registry;
  register_all_reward(registry);
  std::vector<RewardInput> batch;
  for (std::size_t i = 0; i < rows.size(); ++i) batch.push_back({.completion = completions[i], .row = &rows[i]});
  return registry.make(name, options).score(batch);
}

// Judges all cases of one reward in the fixture in one call.
void expect_equal_scores(const Json& cases, const std::string& reward, const char* key, const RewardOptions& options) {
  std::vector<std::string> completions;
  std::vector<Json> rows;
  for (const Json& one : cases) {
    completions.push_back(one["completion"].get<std::string>());
    rows.push_back(one["row"]);
  }
  const RewardScores judged = contest_scores(reward, completions, rows, options);
  ASSERT_GE(judged.size(), 30u);
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const Json& expected = cases[i][key];
    const std::string about = text_of(key, " of case ", i, ": ", completions[i]);
    ASSERT_EQ(judged[i].has_value(), !expected.is_null()) << about;
    if (!judged[i]) continue;
    EXPECT_DOUBLE_EQ(*judged[i], expected.get<double>()) << about;
  }
}

TEST(Outputs, words_compare_as_in_open_r1s_judge) {
  int same = 0;
  for (const Json& pair : fixture()["words"]) {
    const std::string printed = filled_lines(pair["printed"].get<std::string>());
    const std::string expected = filled_lines(unix_lines(pair["expected"].get<std::string>() + "\n"));
    EXPECT_EQ(same_words(printed, expected), pair["same"].get<bool>()) << pair.dump();
    same += pair["same"].get<bool>() ? 1 : 0;
  }
  EXPECT_GE(same, 20);
}

TEST(Outputs, blanks_compare_as_in_diff) {
  int same = 0;
  for (const Json& pair : fixture()["blanks"]) {
    EXPECT_EQ(same_but_for_blanks(pair["printed"].get<std::string>(), pair["expected"].get<std::string>()),
              pair["same"].get<bool>())
        << pair.dump();
    same += pair["same"].get<bool>() ? 1 : 0;
  }
  EXPECT_GE(same, 15);
}

TEST(CfCode, agrees_with_open_r1) {
  SKIP_WITHOUT_SANDBOX();
  expect_equal_scores(fixture()["cf"], "cf_code", "weighted_sum", {});
}

TEST(CfCode, agrees_with_open_r1_in_the_other_modes) {
  SKIP_WITHOUT_SANDBOX();
  expect_equal_scores(fixture()["cf"], "cf_code", "pass_fail",
                      test::with_keys({"--code_eval_test_batch_size=2", "--code_eval_scoring_mode=pass_fail"}));
  expect_equal_scores(fixture()["cf"], "cf_code", "partial",
                      test::with_keys({"--code_eval_test_batch_size=-1", "--code_eval_scoring_mode=partial"}));
}

TEST(IoiCode, agrees_with_open_r1) {
  SKIP_WITHOUT_SANDBOX();
  expect_equal_scores(fixture()["ioi"], "ioi_code", "score", {});
}

// Tests a program that communicates with a manager: the task type Communication of the Contest Management System.
TEST(IoiCode, a_manager_and_its_program_talk) {
  SKIP_WITHOUT_SANDBOX();
  const std::string manager =
      "#include <cstdio>\nint main(int, char** a) { FILE* in = fopen(a[1], \"r\"); FILE* out = fopen(a[2], \"w\");\n"
      "int n; scanf(\"%d\", &n); fprintf(out, \"%d\\n\", n); fflush(out); int m = 0; fscanf(in, \"%d\", &m);\n"
      "puts(m == 2 * n ? \"1.0\" : m == n ? \"0.25\" : \"0.0\"); }\n";
  const std::string stub =
      "#include \"twice.h\"\n#include <cstdio>\nint main() { int n; scanf(\"%d\", &n); printf(\"%d\\n\", twice(n)); "
      "fflush(stdout); }\n";
  const Json config = {{"task_type", "Communication"}, {"task_type_parameters_Communication_num_processes", 1}};
  const Json row = {{"id", "twice"},
                    {"test_names", {"a", "b"}},
                    {"test_cases", {{"a", {"3\n", ""}}, {"b", {"5\n", "1"}}}},
                    {"grader_files", Json::array({Json::array({"graders/twice.h", "int twice(int n);\n"}),
                                                  Json::array({"graders/stub.cpp", stub}),
                                                  Json::array({"graders/manager.cpp", manager}),
                                                  Json::array({"graders/grader_config.json", config.dump()})})},
                    {"time_limit", 20},
                    {"memory_limit", 268435456},
                    {"score_precision", 2}};
  const std::vector<std::string> completions = {"```cpp\nint twice(int n) { return 2 * n; }\n```",
                                                "```cpp\nint twice(int n) { return n; }\n```",
                                                "```cpp\nint twice(int n) { return n / 0 + getpid(); }\n```"};
  EXPECT_EQ(contest_scores("ioi_code", completions, {row, row, row}), (RewardScores{1.0, 0.25, 0.0}));
}

TEST(IoiCode, rounds_as_python_does) {
  EXPECT_EQ(rounded(0.125, 2), 0.12);
  EXPECT_EQ(rounded(0.375, 2), 0.38);
  EXPECT_EQ(rounded(2.675, 2), 2.67);
  EXPECT_EQ(rounded(0.5, 0), 0.0);
  EXPECT_EQ(score_in(" 0.5\n"), 0.5);
  EXPECT_EQ(score_in("nan"), 0.0);
  EXPECT_EQ(score_in("1 point"), 0.0);
  EXPECT_EQ(score_in(""), 0.0);
}

TEST(Contest, a_failing_test_ends_its_run_alone) {
  std::atomic<int> begun = 0;
  ContestRun stopping{.tests = 50,
                      .run = [&](std::size_t test) -> ContestTest {
                        ++begun;
                        return {.score = test == 0 ? 0.0 : 1.0};
                      },
                      .stops = true};
  EXPECT_EQ(run_contest({&stopping, 1}, -1)[0].tests.size(), 50u);
  EXPECT_EQ(begun, 50);
  begun = 0;
  std::vector<ContestRun> both = {
      stopping, {.tests = 3, .run = [](std::size_t) -> ContestTest { return {.score = 0.5}; }, .stops = true}};
  const std::vector<ContestScores> scores = run_contest(both, 1);
  EXPECT_LT(begun, 50);
  EXPECT_EQ(scores[0].tests[0], 0.0);
  EXPECT_EQ(scores[1].tests, (std::vector<double>{0.5, 0.5, 0.5}));
  ContestRun broken{.tests = 2,
                    .run = [](std::size_t test) -> ContestTest { return {.failure = std::to_string(test)}; },
                    .stops = true};
  EXPECT_EQ(run_contest({&broken, 1}, 1)[0].failure, "0");
}

TEST(Contest, rows_and_keys_that_make_no_sense_are_errors) {
  SKIP_WITHOUT_SANDBOX();
  const auto refused = [](const std::string& name, const Json& row, const std::string& part,
                          const RewardOptions& options = {}) {
    try {
      (void)contest_scores(name, {"```cpp\nint main() {}\n```"}, {row}, options);
      ADD_FAILURE() << row.dump() << " was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  };
  const Json cf = {{"official_tests", {{{"input", "1"}, {"output", "1"}}}}};
  refused("cf_code", Json::object(), "no column official_tests");
  refused("cf_code", {{"official_tests", 3}}, "official_tests is 3");
  refused("cf_code", {{"official_tests", {{{"input", "1"}}}}}, "no column output");
  Json wrong = cf;
  wrong["time_limit"] = "long";
  refused("cf_code", wrong, "time_limit");
  refused("cf_code", cf, "code_eval_test_batch_size", test::with_keys({"--code_eval_test_batch_size=0"}));
  Json ioi = {{"id", "x"}, {"test_names", {"a"}}, {"grader_files", Json::array()}};
  refused("ioi_code", ioi, "neither test_cases nor a year");
  ioi["test_cases"] = {{"b", {"1", "1"}}};
  refused("ioi_code", ioi, "no test a");
  ioi["test_cases"] = {{"a", {"1", "1"}}};
  refused("ioi_code", ioi, "no time_limit");
  ioi["time_limit"] = 1;
  ioi["memory_limit"] = 1e8;
  ioi["grader_files"] = Json::array({Json::array({"../../outside.h", "x"})});
  refused("ioi_code", ioi, "leads out of the program's folder");
  Json spoken = cf;
  for (const Json& language : {Json("cobol"), Json("c++17"), Json(nullptr)}) {
    spoken["language"] = language;
    EXPECT_EQ(contest_scores("cf_code", {"```cpp\nint main() {}\n```"}, {spoken}), RewardScores{std::nullopt});
  }
}

TEST(CppCompiler, without_one_the_error_says_what_to_do) {
  const Sandbox sandbox(SandboxMode::kNone);
  try {
    const CppCompiler compiler(sandbox, "/no/such/g++");
    FAIL() << "accepted a compiler that does not exist";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no compiler /no/such/g++"));
    EXPECT_THAT(error.what(), testing::HasSubstr("install the package g++"));
  }
}

TEST(IoiScores, are_between_nothing_and_all) {
  EXPECT_EQ(score_in("0.5\n"), 0.5);
  EXPECT_EQ(score_in("1e300"), 1.0);
  EXPECT_EQ(score_in("-5"), 0.0);
  EXPECT_EQ(score_in("+7"), 1.0);
  for (const char* text : {"inf", "-inf", "nan", "1e999", "0x1p3", "1 1", "1,5", ""}) EXPECT_EQ(score_in(text), 0.0);
}

}  // namespace
}  // namespace hone
