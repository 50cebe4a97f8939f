// Reward cf_code of open-r1, for Codeforces problems, run in hone's sandbox.
//
// Columns of the row:
//   official_tests     [{input, output}, ...]
//   language           "cpp" or "python"
//   time_limit         seconds, 2 if missing
//   memory_limit       MiB, 256 if missing
//   input_mode         "stdio" or "file"
//   generated_checker  a Python program, or null
//   generated_tests    number of tests that are stored in a separate folder under the row's id
//
// Source: rewards.py and competitive_programming/cf_scoring.py of open-r1 at 1416fa0. Programs are run and judged as in
// the package `codeforces` of the execution server that open-r1 uses.
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "reward/cf_code/generated_tests.h"
#include "reward/contest_keys.h"
#include "reward/judging/contest.h"
#include "reward/judging/judge_code.h"
#include "reward/judging/outputs.h"
#include "reward/registry.h"

namespace hone {

// Score as a function of the tests that pass.
enum class CodeScoring : std::uint8_t {
  kPassFail,     // 1 if all pass, otherwise 0
  kPartial,      // passed / total
  kWeightedSum,  // pass_fail + 0.1 * partial
};
template <>
inline constexpr EnumTable kEnumTable<CodeScoring>{.names = "pass_fail|partial|weighted_sum"};

namespace {

constexpr std::string_view kName = "cf_code";
constexpr double kNoCode = -1.0;
constexpr double kDoesNotCompile = -0.1;
constexpr double kPartialWeight = 0.1;
constexpr double kSeconds = 2;  // usual limits of Codeforces, for rows without limits
constexpr double kMebibytes = 256;

struct Problem {
  std::vector<std::pair<std::string_view, std::string_view>> tests;  // input and output; views into row and `generated`
  StoredTests generated;
  std::string checker;  // Python program; empty: outputs are compared by words
  double seconds = kSeconds;
  double memory_bytes = 0;
  bool reads_files = false;
};

std::string optional_text(const Json& row, const char* name, std::string otherwise) {
  const auto place = row.find(name);
  return place == row.end() || place->is_null() ? std::move(otherwise) : text_column(row, name, kName);
}

// Returns the official tests, a list or null.
const Json& official_tests(const Json& row) {
  const Json& tests = column(row, "official_tests", kName);
  if (tests.is_null() || tests.is_array()) return tests;
  throw Error("the cf_code reward", text_of("the column official_tests is ", tests.dump().substr(0, 40)),
              "it must be a list of {input, output}");
}

// Returns the row's language, "cpp" or "python"; empty if it is missing or another one, which open-r1 does not judge.
std::string judged_language(const Json& row) {
  std::string language = optional_text(row, "language", "");
  if (language == "cpp" || language == "python") return language;
  log_once(language.empty() ? std::string("cf_code: rows without a language (cpp or python) get no score")
                            : text_of("cf_code: programs in the language ", language, " get no score"));
  return {};
}

Problem problem_of(const Json& row, const StoredTests& generated) {
  Problem problem;
  for (const Json& test : official_tests(row)) {
    problem.tests.emplace_back(text_in(column(test, "input", kName), "a test's input", kName),
                               text_in(column(test, "output", kName), "a test's output", kName));
  }
  problem.generated = generated;
  if (generated) {
    for (const StoredTest& test : *generated) problem.tests.emplace_back(test.input, test.output);
  }
  problem.checker = optional_text(row, "generated_checker", "");
  problem.reads_files = optional_text(row, "input_mode", "stdio") == "file";
  problem.seconds = number_column(row, "time_limit", kName).value_or(kSeconds);
  problem.memory_bytes = number_column(row, "memory_limit", kName).value_or(kMebibytes) * (1 << 20);
  return problem;
}

// Wraps the program for problems with files: it reads input.txt and writes output.txt, which is then printed. The
// program's standard output is dropped.
void print_file(SandboxProgram& program) {
  std::vector<std::string> all = {"/bin/sh", "-c",
                                  R"("$@" >/dev/null 2>&1 || exit; cat output.txt 2>/dev/null; exit 0)", "sh"};
  all.insert(all.end(), program.arguments.begin(), program.arguments.end());
  program.arguments = std::move(all);
}

struct CodeforcesKeys {
  CodeScoring scoring_mode = CodeScoring::kWeightedSum;
  std::string tests_folder;  // empty: the environment variable CF_TESTS_FOLDER, if it is set

  template <class Visitor>
  void fields(Visitor& v) {
    v("code_eval_scoring_mode", scoring_mode, "cf_code: score of a program by the share of tests that pass");
    v("cf_tests_folder", tests_folder,
      "cf_code: folder of generated tests, test_cases_CONTEST.parquet each; unset: CF_TESTS_FOLDER");
  }
};

class CodeforcesJudge {
 public:
  explicit CodeforcesJudge(const RewardOptions& options)
      : keys_(options.keys.get<CodeforcesKeys>()),
        batch_size_(options.keys.get<ContestKeys>().code_eval_test_batch_size),
        generated_(keys_.tests_folder, options.rows),
        sandbox_(options.sandbox, options.hidden),
        python_(find_python(sandbox_)),
        compiler_(sandbox_) {
    check_batch_size(batch_size_);
  }

  RewardScores operator()(std::span<const RewardInput> batch) {
    return judge_contest({.reward = kName,
                          .batch_size = batch_size_,
                          .stored_tests = [this](const RewardInput& input) { return generated_tests(input); },
                          .prepare = [this](const RewardInput& input,
                                            const StoredTests& generated) { return prepare(input, generated); }},
                         batch);
  }

 private:
  static ContestVerdict settled(std::optional<double> score) {
    ContestVerdict verdict;
    verdict.has_settled = true;
    verdict.settled = score;
    return verdict;
  }

  // Returns the generated tests only if they can change the score, because reading them is slow.
  StoredTests generated_tests(const RewardInput& input) {
    const Json& tests = official_tests(*input.row);
    const std::string language = judged_language(*input.row);
    if (language.empty() || tests.is_null()) return nullptr;
    if (!tests.empty() && last_code_block(input.completion, language).value_or("").empty()) return nullptr;
    return generated_.of(*input.row);
  }

  ContestVerdict prepare(const RewardInput& input, const StoredTests& generated) {
    auto problem = std::make_shared<const Problem>(problem_of(*input.row, generated));
    const std::string language = judged_language(*input.row);
    if (language.empty() || problem->tests.empty()) return settled(std::nullopt);
    const std::string_view code = last_code_block(input.completion, language).value_or("");
    if (code.empty()) return settled(kNoCode);
    std::shared_ptr<const CompiledProgram> compiled;
    SandboxProgram program;
    if (language == "python") {
      program = python_;
      program.arguments.emplace_back("main.py");
      program.files.push_back({"main.py", code});
    } else {
      compiled = compiler_.compile({.flags = {"-DONLINE_JUDGE", "-O2", "-std=c++17", "-pipe", "-s"},
                                    .files = {{"main.cpp", code}},
                                    .sources = {"main.cpp"}});
      if (!compiled->failure.empty()) {
        log_warning(text_of("the cf_code reward: the compiler could not be run, a completion gets no score: ",
                            compiled->failure));
        return settled(std::nullopt);
      }
      if (compiled->binary.empty()) return settled(kDoesNotCompile);
      program = {.arguments = {"./a.out"}, .files = {{"a.out", compiled->binary, true}}, .readable = {}, .pipes = {}};
    }
    if (problem->reads_files) print_file(program);
    ContestVerdict verdict;
    verdict.run.tests = problem->tests.size();
    verdict.run.stops = keys_.scoring_mode == CodeScoring::kPassFail;
    verdict.run.run = [this, problem, compiled, program = std::move(program)](std::size_t test) {
      return run_test(*problem, program, test);
    };
    verdict.score = [this](std::span<const double> tests) { return score(tests); };
    return verdict;
  }

  ContestTest run_test(const Problem& problem, SandboxProgram program, std::size_t test) const {
    const auto& [input, output] = problem.tests[test];
    const std::string given = unix_lines(input);
    const std::string expected = filled_lines(unix_lines(text_of(output, '\n')));
    if (problem.reads_files) program.files.push_back({"input.txt", given});
    const SandboxLimits limits = contest_limits(problem.seconds, problem.memory_bytes, output.size());
    const SandboxResult result = sandbox_.run(program, problem.reads_files ? std::string_view() : given, limits);
    if (!result.failure.empty()) return {.failure = result.failure};
    if (!result.succeeded()) return {};
    const std::string printed = filled_lines(result.output);
    if (problem.checker.empty()) return {.score = same_words(printed, expected) ? 1.0 : 0.0};
    return check(problem, given, expected, printed);
  }

  // Runs the checker in a separate sandbox, after the program that it judges has ended.
  ContestTest check(const Problem& problem, std::string_view input, std::string_view expected,
                    std::string_view printed) const {
    SandboxProgram checker = python_;
    for (const char* name : {"checker.py", "input.txt", "correct_output.txt", "solution_output.txt"}) {
      checker.arguments.emplace_back(name);
    }
    checker.files = {{"checker.py", problem.checker},
                     {"input.txt", input},
                     {"correct_output.txt", expected},
                     {"solution_output.txt", printed}};
    SandboxLimits limits;
    limits.wall_time = std::chrono::seconds(10);
    limits.cpu_seconds = 12;
    const SandboxResult result = sandbox_.run(checker, {}, limits);
    if (!result.failure.empty()) return {.failure = result.failure};
    std::string said = result.output;
    std::erase_if(said, [](char c) { return trim({&c, 1}).empty(); });
    return {.score = result.succeeded() && (said == "1" || said == "100") ? 1.0 : 0.0};
  }

  double score(std::span<const double> tests) const {
    double passed = 0;
    for (const double test : tests) passed += test;
    const auto total = static_cast<double>(tests.size());
    const double all = passed == total ? 1.0 : 0.0;
    switch (keys_.scoring_mode) {
      case CodeScoring::kPassFail:
        return all;
      case CodeScoring::kPartial:
        return passed / total;
      case CodeScoring::kWeightedSum:
        break;
    }
    return all + kPartialWeight * (passed / total);
  }

  CodeforcesKeys keys_;
  std::int64_t batch_size_;
  GeneratedTests generated_;
  Sandbox sandbox_;
  SandboxProgram python_;
  CppCompiler compiler_;
};

}  // namespace

void register_cf_code(RewardRegistry& registry) {
  registry.add_keys(OptionSet::of<ContestKeys, CodeforcesKeys>());
  registry.hide([](const OptionSet& keys) { return keys.get<CodeforcesKeys>().tests_folder; });
  registry.add("cf_code", "cf_code_reward", RewardScope::kCompletion,
               [](const RewardOptions& options) -> RewardFunction {
                 return [judge = std::make_shared<CodeforcesJudge>(options)](std::span<const RewardInput> batch) {
                   return (*judge)(batch);
                 };
               });
}

}  // namespace hone
