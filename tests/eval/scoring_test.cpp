// Tests run_scoring(), the reports and the comparison page.
#include "eval/scoring.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "eval/compare.h"
#include "eval/registry.h"
#include "eval/report.h"
#include "support/paths.h"

namespace hone {
namespace {

TaskResult scored() {
  TaskRegistry registry;
  register_all_eval(registry);
  const EvalTask task = registry.make("gsm8k", {});
  const std::vector<EvalProblem> problems = {{"1", "p1", "6"}, {"2", "p2", "7"}, {"3", "p3", "8"}};
  const std::vector<std::vector<EvalSample>> samples = {
      {{"\\boxed{6}", 10, true}, {"\\boxed{5}", 20, true}},
      {{"\\boxed{7}", 30, true}, {"7", 40, true}},
      {{"none", 50, false}, {"\xC3(", 60, false}},
  };
  return run_scoring(task, problems, samples);
}

TEST(Scoring, averages_over_problems) {
  const TaskResult result = scored();
  EXPECT_EQ(result.task, "gsm8k");
  EXPECT_EQ(result.samples, 2);
  EXPECT_DOUBLE_EQ(result.average.value, 0.5);
  EXPECT_NEAR(*result.average.standard_error, 0.5 / std::sqrt(3.0), 1e-12);
  ASSERT_EQ(result.pass.size(), 2u);
  EXPECT_EQ(result.pass[0].k, 1);
  EXPECT_DOUBLE_EQ(result.pass[0].estimate.value, 0.5);
  EXPECT_EQ(result.pass[1].k, 2);
  EXPECT_DOUBLE_EQ(result.pass[1].estimate.value, 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(result.mean_tokens, 35.0);
  EXPECT_DOUBLE_EQ(result.truncated, 1.0 / 3.0);
  EXPECT_DOUBLE_EQ(result.without_answer, 1.0 / 3.0);
  EXPECT_EQ(result.problems[0].samples[1].judgement.extracted, "5");
}

TEST(Scoring, groups_problems_by_columns) {
  TaskRegistry registry;
  register_all_eval(registry);
  const std::vector<std::string> columns{"kind", "size"};
  const std::vector<EvalProblem> problems = {{.id = "1", .prompt = "a", .gold = "6", .groups = {"sum", "small"}},
                                             {.id = "2", .prompt = "b", .gold = "7", .groups = {"difference", "small"}},
                                             {.id = "3", .prompt = "c", .gold = "8", .groups = {"sum", "large"}}};
  const std::vector<std::vector<EvalSample>> samples = {
      {{"\\boxed{6}", 1, true}}, {{"\\boxed{1}", 1, true}}, {{"\\boxed{1}", 1, true}}};
  const TaskResult result = run_scoring(registry.make("jsonl", {}), problems, samples, columns);
  ASSERT_EQ(result.groups.size(), 4u);
  EXPECT_EQ(result.groups[0].value, "difference");
  EXPECT_EQ(result.groups[1].value, "sum");
  EXPECT_EQ(result.groups[1].problems, 2);
  EXPECT_DOUBLE_EQ(result.groups[1].average.value, 0.5);
  EXPECT_EQ(result.groups[2].column, "size");
  const std::vector<TaskResult> results{result};
  EXPECT_NE(report_table(results).find("  kind sum         2         avg@1  50.0%"), std::string::npos)
      << report_table(results);
  const Json json = results_json(results, {});
  EXPECT_EQ(json["tasks"]["jsonl"]["groups"]["kind"]["sum"]["value"], 0.5);
  EXPECT_EQ(json["tasks"]["jsonl"]["groups"]["kind"]["sum"]["problems"], 2);
}

TEST(Scoring, takes_the_answer_of_most) {
  TaskRegistry registry;
  register_all_eval(registry);
  const EvalTask task = registry.make("gsm8k", {});
  const auto majority = [&](const std::vector<std::string>& completions) {
    std::vector<EvalSample> samples;
    for (const std::string& completion : completions) samples.push_back({completion, 1, true});
    return run_scoring(task, {{"1", "p", "0.5"}}, {samples}).majority->value;
  };
  EXPECT_EQ(majority({"\\boxed{0.5}", "\\boxed{\\frac{1}{2}}", "\\boxed{3}"}), 1.0);
  EXPECT_EQ(majority({"\\boxed{0.5}", "\\boxed{3}", "\\boxed{3.0}"}), 0.0);             // 3 and 3.0 are one answer
  EXPECT_EQ(majority({"\\boxed{3}", "\\boxed{0.5}", "none", "none", "nothing"}), 0.0);  // the first of two
  EXPECT_EQ(majority({"\\boxed{0.5}", "\\boxed{3}", "none", "none", "nothing"}), 1.0);
  EXPECT_EQ(majority({"none", "none"}), 0.0);
  EvalTask without = task;
  without.votes = false;
  EXPECT_FALSE(run_scoring(without, {{"1", "p", "6"}}, {{{"6", 1, true}, {"6", 1, true}}}).majority.has_value());
}

TEST(Scoring, passes_a_judge_s_error_on) {
  EvalTask task{.name = "t"};
  task.judge = [](const EvalProblem& problem, std::string_view) -> Judgement {
    throw Error("row " + problem.id, "no gold");
  };
  try {
    (void)run_scoring(task, {{"1", "", ""}, {"2", "", ""}}, {{{"a"}}, {{"b"}}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "row 1: no gold");
  }
}

TEST(Scoring, demands_as_many_samples_of_every_problem) {
  EvalTask task{.name = "t"};
  task.judge = [](const EvalProblem&, std::string_view) { return Judgement{"x", 1.0}; };
  EXPECT_THROW((void)run_scoring(task, {{"1", "", ""}, {"2", "", ""}}, {{{"a"}}, {{"b"}, {"c"}}}), Defect);
}

TEST(Report, shows_scores_with_their_error) {
  const std::vector<TaskResult> results = {scored()};
  const std::string table = report_table(results);
  EXPECT_NE(table.find("avg@2   50.0% +- 28.9 (0.0-100.0)"), std::string::npos) << table;
  EXPECT_NE(table.find("pass@2  66.7% +- 33.3 (1.3-100.0)"), std::string::npos) << table;
  EXPECT_NE(table.find("33.3%"), std::string::npos) << table;
}

TEST(Report, writes_results_and_every_sample) {
  const test::TemporaryDirectory folder;
  const std::vector<TaskResult> results = {scored()};
  write_report(folder.path() / "eval", results, {{"seed", 42}});
  const Json json = read_json(folder.path() / "eval/results.json");
  EXPECT_EQ(json["settings"]["seed"], 42);
  EXPECT_DOUBLE_EQ(json["tasks"]["gsm8k"]["avg@2"]["value"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(json["tasks"]["gsm8k"]["pass@2"]["value"].get<double>(), 2.0 / 3.0);
  EXPECT_EQ(json["tasks"]["gsm8k"]["problems"], 3);

  std::istringstream lines(read_file(folder.path() / "eval/samples.jsonl"));
  std::vector<Json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(parse_json(line, "samples.jsonl"));
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[1]["id"], "1");
  EXPECT_EQ(rows[1]["sample"], 1);
  EXPECT_EQ(rows[1]["extracted"], "5");
  EXPECT_EQ(rows[1]["score"], 0.0);
  EXPECT_EQ(rows[5]["ended"], false);
  EXPECT_EQ(rows[5]["completion"], "\xEF\xBF\xBD(") << "a broken character is replaced";
}

TEST(Compare, shows_a_sample_that_differs) {
  const auto problem = [](std::vector<ComparedSample> samples) {
    return ComparedProblem{.id = "1", .prompt = "p", .gold = "6", .samples = std::move(samples)};
  };
  const ComparedProblem base = problem({{"a", "6", 1}, {"b", "6", 1}, {"c", "5", 0}});
  const auto shown = [&](const ComparedProblem& other) {
    const ComparedProblem* both[] = {&base, nullptr, &other};
    return sample_to_show(both);
  };
  EXPECT_EQ(shown(problem({{"a", "6", 1}, {"b", "7", 0}, {"c", "5", 0}})), 1u);
  EXPECT_EQ(shown(problem({{"x", "6", 1}, {"b", "6", 1}, {"c", "6", 1}})), 2u) << "scores before completions";
  EXPECT_EQ(shown(problem({{"a", "6", 1}, {"b", "6", 1}, {"c", "4", 0}})), 2u) << "answers";
  EXPECT_EQ(shown(problem({{"a", "6", 1}, {"x", "6", 1}})), 1u) << "completions; only samples that both runs have";
  EXPECT_EQ(shown(base), 0u);
  const ComparedProblem* alone[] = {nullptr, &base};
  EXPECT_EQ(sample_to_show(alone), 0u);
}

TEST(Compare, pairs_problems_and_shows_them) {
  const test::TemporaryDirectory folder;
  TaskRegistry registry;
  register_all_eval(registry);
  const EvalTask task = registry.make("gsm8k", {});
  const std::vector<EvalProblem> problems = {{"1", "<b>p1</b>", "6"}, {"2", "p2", "7"}, {"3", "p3", "8"}};
  const auto write = [&](const char* name, const std::vector<std::vector<EvalSample>>& samples) {
    const std::vector<TaskResult> results = {run_scoring(task, problems, samples)};
    write_report(folder.path() / name, results, {{"model_name_or_path", "m"}});
  };
  write("a", {{{"\\boxed{6}"}, {"\\boxed{5}"}}, {{"\\boxed{7}"}, {"\\boxed{7}"}}, {{"none"}, {"none"}}});
  write("b", {{{"\\boxed{6}"}, {"\\boxed{6}"}}, {{"\\boxed{7}"}, {"\\boxed{1}"}}, {{"\\boxed{8}"}, {"\\boxed{8}"}}});
  const std::vector<std::string> folders = {(folder.path() / "a").string(), (folder.path() / "b").string()};
  const std::vector<ComparedRun> runs = read_runs(folders);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].name, "a");
  ASSERT_EQ(runs[0].tasks.size(), 1u);
  EXPECT_EQ(runs[0].tasks[0].scores.front().name, "avg@2");
  EXPECT_DOUBLE_EQ(runs[0].tasks[0].problems[0].score, 0.5);
  const auto paired = paired_difference(runs[0].tasks[0], runs[1].tasks[0]);
  ASSERT_TRUE(paired.has_value());
  EXPECT_EQ(paired->problems, 3);
  EXPECT_EQ(paired->better, 2);
  EXPECT_EQ(paired->worse, 1);
  EXPECT_NEAR(paired->estimate.value, (0.5 - 0.5 + 1.0) / 3, 1e-12);
  EXPECT_NEAR(*paired->estimate.standard_error, std::sqrt(7.0 / 12 / 3), 1e-12);  // differences: 1/2, -1/2, 1
  const std::string page = comparison_page(runs);
  EXPECT_NE(page.find("+33.3"), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt;p1&lt;/b&gt;"), std::string::npos);
  EXPECT_EQ(page.find("<b>p1"), std::string::npos);
  EXPECT_NE(page.find("<details open><summary>problem 3"), std::string::npos);
  EXPECT_LT(page.find("problem 3"), page.find("problem 1"));  // the runs differ most on problem 3
  EXPECT_EQ(page.find("http"), std::string::npos);
  // The first samples of problems 1 and 2 are equal in both runs.
  EXPECT_NE(page.find(", sample 2 of 2"), std::string::npos);
  EXPECT_NE(page.find("<pre>\\boxed{5}</pre>"), std::string::npos) << "of run a on problem 1";
  EXPECT_NE(page.find("<pre>\\boxed{1}</pre>"), std::string::npos) << "of run b on problem 2";
  write_file(folder.path() / "b" / "samples.jsonl", "{\"task\": \"gsm8k\"}\n");
  try {
    (void)read_runs(folders);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("line 1: is not a sample"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hone
