// Rewards whose tests are stored outside of the rows: in Parquet files of a folder, or in a data set of the hub. Scores
// are compared with open-r1 (fixtures/reward/make_stored_tests.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "rl/reward_options.h"
#include "rl/reward_rows.h"
#include "support/environment.h"
#include "support/option_flags.h"
#include "support/paths.h"
#include "support/sandbox.h"
#include "support/small_hub.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

fs::path cf_tests() { return test::fixture("reward/cf_tests"); }

const Json& stored_fixture() {
  static const Json all = read_json(test::fixture("reward/stored_tests.json"));
  return all;
}

// Isolates each test with its own environment, cache and hub.
class ContestRewards : public testing::Test {
 protected:
  ContestRewards() {
    environment_.set("CF_TESTS_FOLDER", std::nullopt);
    std::map<std::string, test::SmallHubFile> files;
    const fs::path folder = test::fixture("reward/ioi_test_cases");
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string path = fs::relative(entry.path(), folder).string();
      files[path] = {.content = read_file(entry.path()), .is_lfs = path.ends_with(".parquet"), .served = {}};
    }
    hub_.add("datasets/open-r1/ioi-test-cases", std::move(files));
  }

  void SetUp() override { SKIP_WITHOUT_SANDBOX(); }

  static void set(RewardKeys& keys, const std::string& flag) { keys = test::with_flags(keys, {flag}); }
  static RewardScores scores(const RewardKeys& keys, const std::vector<std::string>& completions,
                             const std::vector<Json>& rows) {
    std::vector<RewardInput> batch;
    for (std::size_t i = 0; i < rows.size(); ++i) batch.push_back({.completion = completions[i], .row = &rows[i]});
    return rewards_of(keys, false, {})[0].score(batch);
  }

  static void expect_scores(const RewardKeys& keys, const Json& cases, const char* key) {
    std::vector<std::string> completions;
    std::vector<Json> rows;
    for (const Json& one : cases) {
      completions.push_back(one["completion"].get<std::string>());
      rows.push_back(one["row"]);
    }
    const RewardScores judged = scores(keys, completions, rows);
    ASSERT_EQ(judged.size(), cases.size());
    for (std::size_t i = 0; i < judged.size(); ++i) {
      const Json& expected = cases[i][key];
      const std::string about = text_of(key, " of case ", i, ": ", completions[i], rows[i].dump());
      ASSERT_EQ(judged[i].has_value(), !expected.is_null()) << about;
      if (judged[i]) {
        EXPECT_DOUBLE_EQ(*judged[i], expected.get<double>()) << about;
      }
    }
  }

  // Returns the message of the error with which scoring a row fails.
  static std::string refusal(const RewardKeys& keys, const Json& row) {
    const bool is_python = row.value("language", "cpp") == "python";
    try {
      (void)scores(keys, {is_python ? "```python\nprint(3)\n```" : "```cpp\nint main() {}\n```"}, {row});
      return "no error";
    } catch (const Error& error) {
      return error.what();
    }
  }

  static Json cf_row(const std::string& id) {
    return {{"id", id},
            {"language", "python"},
            {"official_tests", {{{"input", "1 2\n"}, {"output", "3\n"}}}},
            {"generated_tests", 2}};
  }
  static Json ioi_row(int year, const std::string& id) {
    Json row = stored_fixture()["ioi"][0]["row"];
    row["year"] = year;
    row["id"] = id;
    return row;
  }

  test::SmallHub hub_;
  test::TemporaryDirectory home_;
  test::Environment environment_{hub_.variables(home_.path())};
};

TEST_F(ContestRewards, cf_code_with_generated_tests_agrees_with_open_r1) {
  const Json& cases = stored_fixture()["cf"];
  ASSERT_GE(cases.size(), 20u);
  RewardKeys keys{.reward_funcs = {"cf_code"}};
  set(keys, "--cf_tests_folder=" + cf_tests().string());
  expect_scores(keys, cases, "weighted_sum");
  set(keys, "--code_eval_scoring_mode=partial");
  expect_scores(keys, cases, "partial");
  // The environment variable also names the folder; the key takes precedence.
  set(keys, "--code_eval_scoring_mode=pass_fail");
  set(keys, "--code_eval_test_batch_size=-1");
  environment_.set("CF_TESTS_FOLDER", "/no/such/folder");
  expect_scores(keys, cases, "pass_fail");
  environment_.set("CF_TESTS_FOLDER", cf_tests());
  set(keys, "--cf_tests_folder=");
  expect_scores(keys, cases, "pass_fail");
}

TEST_F(ContestRewards, what_is_amiss_with_generated_tests_is_one_line) {
  RewardKeys keys{.reward_funcs = {"cf_code"}};
  EXPECT_THAT(refusal(keys, cf_row("12/A")),
              AllOf(HasSubstr("12/A has 2 generated tests"), HasSubstr("cf_tests_folder"), HasSubstr("CF_TESTS_FOLDER"),
                    HasSubstr("hf download open-r1/codeforces")));
  const fs::path empty = home_.path() / "empty";
  fs::create_directories(empty);
  set(keys, "--cf_tests_folder=" + empty.string());
  EXPECT_THAT(refusal(keys, cf_row("12/A")), AllOf(HasSubstr(empty.string()), HasSubstr("hf download")));
  fs::create_symlink(cf_tests(), empty / "generated_tests");
  EXPECT_THAT(refusal(keys, cf_row("12/A")), HasSubstr(text_of("use ", (empty / "generated_tests").string())));
  set(keys, "--cf_tests_folder=" + (empty / "missing").string());
  EXPECT_THAT(refusal(keys, cf_row("12/A")), AllOf(HasSubstr("cf_tests_folder"), HasSubstr("is not a folder")));
  environment_.set("CF_TESTS_FOLDER", empty / "missing");
  set(keys, "--cf_tests_folder=");
  EXPECT_THAT(refusal(keys, cf_row("12/A")), AllOf(HasSubstr("CF_TESTS_FOLDER"), HasSubstr("is not a folder")));
  set(keys, "--cf_tests_folder=" + cf_tests().string());
  EXPECT_THAT(refusal(keys, cf_row("13/A")), AllOf(HasSubstr("test_cases_0013.parquet"), HasSubstr("column 'output'")));
  EXPECT_THAT(refusal(keys, cf_row("14/A")),
              AllOf(HasSubstr("test_cases_0014.parquet row 2"), HasSubstr("the column output is null")));
  EXPECT_THAT(refusal(keys, cf_row("15/A")), HasSubstr("the column input is 1"));
  EXPECT_THAT(refusal(keys, cf_row("A")), HasSubstr("does not begin with a contest number"));
  const fs::path damaged = home_.path() / "damaged";
  fs::create_directories(damaged);
  write_file(damaged / "test_cases_0012.parquet", "no table");
  set(keys, "--cf_tests_folder=" + damaged.string());
  EXPECT_THAT(refusal(keys, cf_row("12/A")), HasSubstr("test_cases_0012.parquet"));
  Json none = cf_row("12/A");
  none["generated_tests"] = 0;
  EXPECT_EQ(refusal(keys, none), "no error");
}

TEST_F(ContestRewards, ioi_code_takes_tests_from_the_hub_and_agrees_with_open_r1) {
  const Json& cases = stored_fixture()["ioi"];
  ASSERT_GE(cases.size(), 15u);
  const RewardKeys keys{.reward_funcs = {"ioi_code"}};
  expect_scores(keys, cases, "score");
  const std::vector<std::string> requests = hub_.requests();
  EXPECT_THAT(requests, Contains(HasSubstr("2020/train-00001-of-00002.parquet")));
  // The second time the tests come from the cache, without the hub.
  environment_.set("HF_HUB_OFFLINE", "1");
  expect_scores(keys, cases, "score");
  EXPECT_EQ(hub_.requests(), requests);
}

TEST_F(ContestRewards, only_the_years_that_are_asked_for_are_fetched) {
  const RewardKeys keys{.reward_funcs = {"ioi_code"}};
  Json row = ioi_row(2021, "sums");
  row["test_names"] = {"0-01"};
  EXPECT_EQ(refusal(keys, row), "no error");
  EXPECT_THAT(hub_.requests(), AllOf(Contains(HasSubstr("2021/train")), Not(Contains(HasSubstr("2020/train")))));
}

TEST_F(ContestRewards, what_is_amiss_with_the_hubs_tests_is_one_line) {
  const RewardKeys keys{.reward_funcs = {"ioi_code"}};
  EXPECT_THAT(
      refusal(keys, ioi_row(2020, "unheard")),
      AllOf(HasSubstr("open-r1/ioi-test-cases"), HasSubstr("no tests of the problem unheard in the year 2020")));
  Json row = ioi_row(2020, "sums");
  row["test_names"] = {"9-99"};
  EXPECT_THAT(refusal(keys, row), HasSubstr("no test 9-99 of the problem sums"));
  EXPECT_THAT(refusal(keys, ioi_row(1989, "sums")), AllOf(HasSubstr("1989"), HasSubstr("2021")));
  row.erase("year");
  EXPECT_THAT(refusal(keys, row), HasSubstr("neither test_cases nor a year"));
  environment_.set("HF_HUB_OFFLINE", "1");
  environment_.set("HF_HOME", home_.path() / "new");
  EXPECT_THAT(refusal(keys, ioi_row(2020, "sums")),
              AllOf(HasSubstr("open-r1/ioi-test-cases"), HasSubstr("HF_HUB_OFFLINE")));
}

TEST(RewardRows, a_files_rows_come_in_order_and_its_name_is_no_pattern) {
  const test::TemporaryDirectory folder;
  const fs::path path = folder.path() / "odd,[1]*.jsonl";
  write_file(path, "{\"k\": \"a\", \"v\": \"1\"}\n{\"k\": \"b\", \"v\": \"2\"}\n{\"k\": \"a\", \"v\": \"3\"}\n");
  std::string seen;
  visit_rows({.dataset = path.string(), .config = {}, .key_column = "k", .key = "a", .columns = {"v", "k"}},
             [&](std::span<const std::string_view> values) { seen += text_of(values[0], values[1], " "); });
  EXPECT_EQ(seen, "1a 3a ");
}

}  // namespace
}  // namespace hone
