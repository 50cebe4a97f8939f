// Tests the evaluation tasks: prompts, gold answers, extraction (compared with fixtures/eval/make_extraction.py), and
// errors that name the row.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "eval/gpqa/letters.h"
#include "eval/gpqa/python_random.h"
#include "eval/math_task.h"
#include "eval/registry.h"
#include "support/error_text.h"
#include "support/paths.h"

namespace hone {
namespace {

using test::error_text;

EvalTask make(const std::string& name, const TaskOptions& options = {}) {
  TaskRegistry registry;
  register_all_eval(registry);
  return registry.make(name, options);
}

double judge(const EvalTask& task, const std::string& gold, const std::string& completion) {
  return task.judge({.gold = gold}, completion).score;
}

TEST(TaskRegistry, holds_every_folder) {
  TaskRegistry registry;
  register_all_eval(registry);
  std::size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "src/eval")) {
    const std::string name = entry.path().filename().string();
    folders += entry.is_directory() && std::filesystem::exists(entry.path() / (name + ".cpp")) ? 1 : 0;
  }
  EXPECT_GE(folders, 2u);
  EXPECT_GE(registry.names().size(), folders);
  EXPECT_NE(error_text([] { (void)make("gsm8"); }).find("did you mean 'gsm8k'"), std::string::npos);
}

TEST(MathTask, finds_answers_as_the_reference_does) {
  std::istringstream lines(read_file(test::fixture("eval/extraction.jsonl")));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json row = parse_json(line, "extraction.jsonl");
    const auto gold = row["gold"].get<std::string>();
    const auto text = row["text"].get<std::string>();
    const Judgement judgement = judge_math(gold, text, true);
    EXPECT_EQ(judgement.score, row["score"].get<double>()) << line << "\nextracted: " << judgement.extracted;
  }
  EXPECT_GE(count, 50u);
}

TEST(MathTask, is_strict_where_told) {
  const EvalTask loose = make("gsm8k");
  const EvalTask strict = make("gsm8k", {.strip_thoughts = false, .strict_equality = true});
  for (const char* text : {"\\boxed{x=41=42}", "\\boxed{42\\text{ km}}", "<think>\\boxed{42}", "answer: $42_7$"}) {
    EXPECT_EQ(judge(loose, "42", text), 1.0) << text;
    EXPECT_EQ(judge(strict, "42", text), 0.0) << text;
  }
  EXPECT_EQ(judge(strict, "42", "<think>\\boxed{41}</think> The answer is 42."), 1.0);
  EXPECT_EQ(judge(strict, "42 km", "\\boxed{42\\text{ km}}"), 1.0);
  EXPECT_TRUE(loose.same("\\frac{1}{3}", "0.333333"));
  EXPECT_FALSE(strict.same("\\frac{1}{3}", "0.333333"));
}

TEST(Gsm8k, reads_problems_and_judges) {
  const test::TemporaryDirectory folder;
  const auto file = folder.path() / "test.jsonl";
  write_file(file, R"({"question": "How many {eggs}?", "answer": "16 - 3 = <<16-3=13>>13\n#### 1,013"})"
                   "\n"
                   R"({"question": "And now?", "answer": "#### -2"})"
                   "\n");
  const EvalTask task = make("gsm8k");
  const auto problems = read_problems(task, file);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].id, "1");
  EXPECT_EQ(problems[0].gold, "1,013");
  EXPECT_EQ(
      problems[0].prompt,
      "Solve the following math problem efficiently and clearly.  The last line of your response should be of the "
      "following format: 'Therefore, the final answer is: $\\boxed{ANSWER}$. I hope it is correct' (without quotes) "
      "where ANSWER is just the final number or expression that solves the problem. Think step by step before "
      "answering.\n\nHow many {eggs}?");
  EXPECT_EQ(task.judge(problems[0], "Therefore, the final answer is: $\\boxed{1013}$. I hope it is correct").score,
            1.0);
  EXPECT_EQ(task.judge(problems[0], "Therefore, the final answer is: $\\boxed{13}$. I hope it is correct").score, 0.0);
  EXPECT_EQ(task.judge(problems[1], "It is -2.").score, 1.0);
  EXPECT_EQ(task.judge(problems[1], "It is -2.").extracted, "-2");
  EXPECT_EQ(read_problems(task, file, 1).size(), 1u);
}

TEST(Gsm8k, drops_thoughts_unless_told_otherwise) {
  const std::string text = "<think>\\boxed{6}</think> I do not know.";
  EXPECT_EQ(judge(make("gsm8k"), "6", text), 0.0);
  EXPECT_EQ(judge(make("gsm8k", {.strip_thoughts = false}), "6", text), 1.0);
}

TEST(Jsonl, finds_columns_and_fills_the_template) {
  const EvalTask task = make("jsonl", {.prompt_template = "[{subject}] {problem} {unknown} {"});
  const EvalProblem problem = task.read({{"id", 7}, {"question", "1+{subject}?"}, {"answer", 2}, {"subject", "sums"}});
  EXPECT_EQ(problem.id, "7");
  EXPECT_EQ(problem.prompt, "[sums] 1+{subject}? {unknown} {");
  EXPECT_EQ(problem.gold, "2");
  const EvalTask named = make("jsonl", {.problem_column = "q", .answer_column = "a"});
  EXPECT_EQ(named.read({{"q", "x"}, {"a", "\\sqrt{2}"}, {"answer", "3"}}).gold, "\\sqrt{2}");
}

TEST(Jsonl, compares_bare_latex_golds) {
  EXPECT_EQ(judge(make("jsonl"), "\\sqrt{8}", "\\boxed{2\\sqrt{2}}"), 1.0);
  EXPECT_EQ(judge(make("jsonl"), "\\text{east}", "The answer is $\\text{East}$."), 1.0);
}

TEST(Jsonl, compares_exactly_when_told) {
  const EvalTask task = make("jsonl", {.matching = AnswerMatching::kExact});
  EXPECT_EQ(task.read({{"problem", "Capital?"}, {"answer", "Paris"}}).prompt, "Capital?");
  EXPECT_EQ(judge(task, "Paris", "<think>hm</think>\n Paris \n"), 1.0);
  EXPECT_EQ(judge(task, "Paris", "paris"), 0.0);
  EXPECT_EQ(judge(task, "1.0", "1"), 0.0);
}

TEST(Tasks, read_the_columns_that_scores_are_grouped_by) {
  const test::TemporaryDirectory folder;
  const auto file = folder.path() / "test.jsonl";
  write_file(file, "{\"problem\": \"a\", \"answer\": \"1\", \"level\": 3, \"kind\": \"sum\"}\n");
  const std::vector<std::string> columns{"kind", "level"};
  EXPECT_EQ(read_problems(make("jsonl"), file, 0, columns).at(0).groups, (std::vector<std::string>{"sum", "3"}));
  const std::vector<std::string> missing{"subject"};
  EXPECT_NE(error_text([&] { (void)read_problems(make("jsonl"), file, 0, missing); }).find("'subject'"),
            std::string::npos);
}

TEST(Tasks, name_the_row_that_they_cannot_use) {
  const test::TemporaryDirectory folder;
  const auto file = folder.path() / "test.jsonl";
  write_file(file, "{\"problem\": \"a\", \"answer\": \"1\"}\n{\"problem\": \"b\"}\n");
  EXPECT_NE(error_text([&] { (void)read_problems(make("jsonl"), file); }).find("line 2"), std::string::npos);
  write_file(file, "{\"problem\": \"a\", \"answer\": \"\"}\n");
  EXPECT_NE(error_text([&] { (void)read_problems(make("jsonl"), file); }).find("answer"), std::string::npos);
  write_file(file, "{\"problem\": \"a\", \"answer\": \"1\"}\nnot json\n");
  EXPECT_NE(error_text([&] { (void)read_problems(make("jsonl"), file); }).find("line 2"), std::string::npos);
  EXPECT_NE(error_text([] { (void)make("jsonl").read({{"problem", "a"}, {"answer", {1, 2}}}); }).find("'answer'"),
            std::string::npos);
}

TEST(MathTasks, take_gold_and_id_from_the_published_columns) {
  const Json aime = {{"id", 60}, {"problem", "p"}, {"solution", "no"}, {"answer", "204"}};
  for (const char* name : {"aime24", "aime_2024", "aime25", "aime_2025"}) {
    const EvalTask task = make(name);
    EXPECT_EQ(task.samples, 64);
    EXPECT_EQ(task.read(aime).gold, "204");
    EXPECT_EQ(task.read(aime).id, "60");
    EXPECT_EQ(task.judge(task.read(aime), "The answer is 204.").score, 1.0);
  }
  const EvalTask math = make("math_500");
  EXPECT_EQ(math.samples, 4);
  const EvalProblem problem = math.read({{"unique_id", "test/a/1.json"},
                                         {"problem", "p"},
                                         {"solution", "Thus $x = \\boxed{\\frac{1}{2}}$."},
                                         {"answer", "9"}});
  EXPECT_EQ(problem.id, "test/a/1.json");
  EXPECT_EQ(math.judge(problem, "\\boxed{0.5}").score, 1.0);
  EXPECT_EQ(math.judge(problem, "\\boxed{9}").score, 0.0);
}

TEST(Gpqa, finds_letters_as_the_reference_does) {
  std::istringstream lines(read_file(test::fixture("eval/letters.jsonl")));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json row = parse_json(line, "letters.jsonl");
    const std::optional<char> letter = chosen_letter(row["text"].get<std::string>());
    const std::string wanted = row["letter"].is_null() ? "" : row["letter"].get<std::string>();
    EXPECT_EQ(letter ? std::string(1, *letter) : "", wanted) << line;
  }
  EXPECT_GE(count, 400u);
}

TEST(Gpqa, puts_the_gold_where_python_draws_it) {
  const Json drawn = read_json(test::fixture("eval/places.json"));
  for (const auto& [seed, places] : drawn.items()) {
    PythonRandom random(std::stoull(seed));
    for (const Json& place : places) ASSERT_EQ(random.up_to(3), place.get<std::uint32_t>()) << seed;
  }
  const Json row = {{"Record ID", "rec1"},        {"Question", "Which?"},       {"Correct Answer", "right"},
                    {"Incorrect Answer 1", "w1"}, {"Incorrect Answer 2", "w2"}, {"Incorrect Answer 3", "w3"}};
  const EvalTask task = make("gpqa_diamond", {.seed = 1234});
  EXPECT_EQ(task.name, "gpqa:diamond");
  const EvalProblem first = task.read(row);
  EXPECT_EQ(first.gold, "D");
  EXPECT_TRUE(first.prompt.ends_with("before answering.\n\nWhich?\n\nA) w1\nB) w2\nC) w3\nD) right")) << first.prompt;
  const EvalProblem second = task.read(row);
  EXPECT_EQ(second.gold, "A");
  EXPECT_TRUE(second.prompt.ends_with("A) right\nB) w1\nC) w2\nD) w3")) << second.prompt;
  EXPECT_EQ(task.judge(first, "<think>Answer: A</think>Answer: D").score, 1.0);
  EXPECT_EQ(task.judge(first, "none").extracted, "");
  EXPECT_NE(error_text([&] { (void)task.read({{"Question", "q"}}); }).find("'Incorrect Answer 1'"), std::string::npos);
}

TEST(Tasks, read_the_files_that_hold_them) {
  const test::TemporaryDirectory folder;
  const std::string row = "{\"problem\": \"a\", \"answer\": \"1\"}\n";
  for (const char* name : {"test.jsonl", "test4.jsonl", "test5.jsonl"}) write_file(folder.path() / name, row);
  EvalTask task = make("jsonl");
  EXPECT_EQ(read_problems(task, folder.path()).size(), 3u);
  task.files = {"test4.jsonl", "test5.jsonl"};
  EXPECT_EQ(read_problems(task, folder.path()).size(), 2u);
  EXPECT_EQ(read_problems(task, folder.path(), 1).size(), 1u);
}

}  // namespace
}  // namespace hone
