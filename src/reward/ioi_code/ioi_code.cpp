// Reward ioi_code of open-r1, for problems of the International Olympiad in Informatics: the lowest score over the
// tests of a subtask, rounded. The submission, the manager and the checker run in separate sandboxes.
//
// Source: rewards.py and competitive_programming/ioi_scoring.py of open-r1 at 1416fa0. Programs are compiled, run and
// judged as in the package `cms_ioi` of the execution server that open-r1 uses.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "reward/contest_keys.h"
#include "reward/ioi_code/conversation.h"
#include "reward/ioi_code/ioi_problem.h"
#include "reward/judging/contest.h"
#include "reward/judging/judge_code.h"
#include "reward/judging/outputs.h"
#include "reward/registry.h"

namespace hone {
namespace {

constexpr std::string_view kTestCases = "open-r1/ioi-test-cases";

using Binary = std::shared_ptr<const CompiledProgram>;

struct Subtask {
  IoiProblem problem;
  StoredTests stored;  // owns the tests that `problem` refers to; null: the row owns them
  Binary program;
  Binary checker;  // null: outputs are compared with same_but_for_blanks()
  Binary manager;  // null: a Batch task
};

class IoiJudge {
 public:
  explicit IoiJudge(const RewardOptions& options)
      : batch_size_(options.keys.get<ContestKeys>().code_eval_test_batch_size),
        rows_(options.rows),
        sandbox_(options.sandbox, options.hidden),
        compiler_(sandbox_) {
    check_batch_size(batch_size_);
  }

  RewardScores operator()(std::span<const RewardInput> batch) {
    return judge_contest(
        {.reward = kIoiCode,
         .batch_size = batch_size_,
         .stored_tests = [this](const RewardInput& input) { return stored_tests(input); },
         .prepare = [this](const RewardInput& input, const StoredTests& stored) { return prepare(input, stored); }},
        batch);
  }

 private:
  static ContestVerdict settled(std::optional<double> score) {
    ContestVerdict verdict;
    verdict.has_settled = true;
    verdict.settled = score;
    return verdict;
  }

  // Returns the tests of the row's year and problem, as open-r1's load_ioi_tests does; null if the row contains its
  // tests or the completion contains no program.
  StoredTests stored_tests(const RewardInput& input) {
    const Json& row = *input.row;
    if (has_test_cases(row) || last_code_block(input.completion, "cpp").value_or("").empty()) return nullptr;
    const std::optional<double> year = number_column(row, "year", kIoiCode);
    if (!year) {
      throw Error("the ioi_code reward", "the row has neither test_cases nor a year",
                  "add test_cases: {test_name: [input, output]}, or the year in open-r1/ioi-test-cases");
    }
    const std::string problem = text_column(row, "id", kIoiCode);
    const std::string config = std::to_string(static_cast<std::int64_t>(std::clamp(*year, 0.0, 9999.0)));
    StoredTests tests = shelf_.take(config + "/" + problem, [&] {
      return read_stored_tests(rows_, {.dataset = std::string(kTestCases),
                                       .config = config,
                                       .key_column = "problem_id",
                                       .key = problem,
                                       .columns = {"test_name", "test_input", "test_output"}});
    });
    if (!tests->empty()) return tests;
    throw Error(std::string(kTestCases), text_of("no tests of the problem ", problem, " in the year ", config));
  }

  ContestVerdict prepare(const RewardInput& input, const StoredTests& stored) {
    const std::string_view code = last_code_block(input.completion, "cpp").value_or("");
    if (code.empty()) return settled(0.0);
    auto subtask = std::make_shared<Subtask>();
    IoiProblem& problem = subtask->problem;
    problem = ioi_problem(*input.row, stored);
    subtask->stored = stored;
    if (problem.tests.empty() || problem.task == IoiTask::kOther) return settled(0.0);
    const std::string source = with_includes(code, problem.id);
    subtask->program = compiler_.compile(submission_source(problem, source));
    if (!subtask->program->failure.empty()) return infrastructure("the compiler", *subtask->program);
    if (subtask->program->binary.empty()) return settled(0.0);
    if (problem.has("checker/checker.cpp")) subtask->checker = compiler_.compile(checker_source(problem));
    if (problem.task == IoiTask::kCommunication) subtask->manager = compiler_.compile(manager_source(problem));
    for (const auto& [name, binary] : {std::pair("the checker", subtask->checker), {"the manager", subtask->manager}}) {
      if (binary && binary->binary.empty()) return infrastructure(name, *binary);
    }
    ContestVerdict verdict;
    verdict.run.tests = problem.tests.size();
    verdict.run.stops = true;
    verdict.run.run = [this, subtask](std::size_t test) { return run_test(*subtask, test); };
    verdict.score = [precision = problem.score_precision](std::span<const double> tests) {
      return rounded(*std::ranges::min_element(tests), precision);
    };
    return verdict;
  }

  static ContestVerdict infrastructure(std::string_view what, const CompiledProgram& program) {
    const std::string& messages = program.failure.empty() ? program.messages : program.failure;
    log_warning(text_of("the ioi_code reward: ", what,
                        " does not work; the completion gets no score: ", messages.substr(0, 300)));
    return settled(std::nullopt);
  }

  ContestTest run_test(const Subtask& subtask, std::size_t index) const {
    const IoiProblem& problem = subtask.problem;
    const IoiTest& test = problem.tests[index];
    const SandboxLimits limits = contest_limits(problem.seconds, problem.memory_bytes, test.output.size());
    const std::string_view binary = subtask.program->binary;
    const SandboxResult result =
        subtask.manager
            ? converse(sandbox_, problem, binary, subtask.manager->binary, test.input, limits)
            : sandbox_.run(
                  {.arguments = {"./program"}, .files = {{"program", binary, true}}, .readable = {}, .pipes = {}},
                  test.input, limits);
    if (!result.failure.empty()) return {.failure = result.failure};
    if (!result.succeeded()) return {};
    const bool expected = test.output.find_first_not_of('\n') != std::string_view::npos;
    if (expected && subtask.checker) return check(*subtask.checker, test, result.output);
    // A manager, or a grader of a test without expected output, prints the score.
    if (!expected || subtask.manager) return {.score = score_in(result.output)};
    return {.score = same_but_for_blanks(result.output, test.output) ? 1.0 : 0.0};
  }

  ContestTest check(const CompiledProgram& checker, const IoiTest& test, std::string_view printed) const {
    std::string expected(test.output);
    while (expected.ends_with('\n')) expected.pop_back();
    expected += '\n';
    const SandboxProgram program{.arguments = {"./checker", "input.txt", "correct_output.txt", "solution_output.txt"},
                                 .files = {{"checker", checker.binary, true},
                                           {"input.txt", test.input},
                                           {"correct_output.txt", expected},
                                           {"solution_output.txt", printed}},
                                 .readable = {},
                                 .pipes = {}};
    SandboxLimits limits = contest_limits(10, double{2ULL << 30}, 0);
    const SandboxResult result = sandbox_.run(program, {}, limits);
    if (!result.failure.empty()) return {.failure = result.failure};
    return {.score = result.timed_out ? 0.0 : score_in(result.output)};
  }

  std::int64_t batch_size_;
  RowSource rows_;
  TestShelf shelf_;
  Sandbox sandbox_;
  CppCompiler compiler_;
};

}  // namespace

void register_ioi_code(RewardRegistry& registry) {
  registry.add_keys(OptionSet::of<ContestKeys>());
  registry.add("ioi_code", "ioi_code_reward", RewardScope::kCompletion,
               [](const RewardOptions& options) -> RewardFunction {
                 return [judge = std::make_shared<IoiJudge>(options)](std::span<const RewardInput> batch) {
                   return (*judge)(batch);
                 };
               });
}

}  // namespace hone
