#include "reward/judging/judge_code.h"

#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/strings.h"
#include "reward/judging/outputs.h"
#include "sandbox/runner.h"

namespace hone {
namespace {

constexpr std::string_view kColumn = "verification_info";

struct TestCase {
  std::string input;
  std::string output;
};

[[noreturn]] void refuse(std::string_view what) {
  throw Error("the code reward", what,
              "a row needs verification_info: {language: \"python\", test_cases: [{input: TEXT, output: TEXT}, ...]}");
}

std::string text_at(const Json& test, const char* key) {
  if (!test.is_object() || !test.contains(key) || !test[key].is_string()) {
    refuse(text_of("a test case has no text field `", key, "`"));
  }
  return test[key].get<std::string>();
}

// Reads the column verification_info: an object, or a string that contains the object as JSON.
std::vector<TestCase> test_cases(const Json& row) {
  if (!row.contains(kColumn)) refuse(text_of("the row has no column ", kColumn));
  const Json& column = row[kColumn];
  const Json info = column.is_string() ? parse_json(column.get_ref<const std::string&>(), kColumn) : column;
  if (!info.is_object() || !info.contains("test_cases") || !info["test_cases"].is_array()) {
    refuse(text_of(kColumn, " has no list `test_cases`"));
  }
  if (info.contains("language") && info["language"] != "python") {
    refuse(text_of("programs of the language ", info["language"].dump(), " cannot be run"));
  }
  std::vector<TestCase> cases;
  for (const Json& test : info["test_cases"]) cases.push_back({text_at(test, "input"), text_at(test, "output")});
  return cases;
}

// Program of one completion and its test cases.
struct Submission {
  SandboxProgram program;
  std::shared_ptr<const std::vector<TestCase>> cases;
  bool runs = false;  // false: the completion contains no program
};

struct Run {
  const Submission* submission = nullptr;
  const TestCase* test = nullptr;
  bool passed = false;
  std::string failure;  // why the program could not be run; empty if it ran
};

class Judge {
 public:
  explicit Judge(const RewardOptions& options)
      : sandbox_(options.sandbox, options.hidden), python_(find_python(sandbox_)) {}

  std::vector<std::optional<double>> operator()(std::span<const RewardInput> batch) const {
    const std::vector<Submission> submissions = submissions_of(batch);
    std::vector<Run> runs;
    for (const Submission& submission : submissions) {
      if (!submission.runs) continue;
      for (const TestCase& test : *submission.cases) runs.push_back({.submission = &submission, .test = &test});
    }
    // Each output is compared as soon as it is complete and then dropped, which bounds the memory.
    run_many(runs.size(), 0, [&](std::size_t i) { run(runs[i]); });
    std::vector<std::optional<double>> shares;
    shares.reserve(submissions.size());
    std::span<const Run> left(runs);
    for (const Submission& submission : submissions) {
      const std::size_t count = submission.runs ? submission.cases->size() : 0;
      shares.push_back(share_passed(submission, left.first(count)));
      left = left.subspan(count);
    }
    return shares;
  }

 private:
  std::vector<Submission> submissions_of(std::span<const RewardInput> batch) const {
    std::vector<Submission> submissions;
    submissions.reserve(batch.size());
    const Json* row = nullptr;  // row of the previous completion; completions of a group are adjacent and share it
    for (const RewardInput& input : batch) {
      Submission submission;
      submission.cases = row != nullptr && input.row == row
                             ? submissions.back().cases
                             : std::make_shared<const std::vector<TestCase>>(test_cases(*input.row));
      row = input.row;
      const std::optional<std::string_view> code = last_code_block(input.completion, "python");
      submission.runs = code.has_value();
      if (code) {
        submission.program = python_;
        submission.program.arguments.emplace_back("program.py");
        submission.program.files.push_back({"program.py", *code});
      }
      submissions.push_back(std::move(submission));
    }
    return submissions;
  }

  void run(Run& run) const {
    const SandboxResult result = sandbox_.run(run.submission->program, run.test->input, {});
    run.failure = result.failure;
    run.passed = result.succeeded() && same_output(result.output, run.test->output);
  }

  static std::optional<double> share_passed(const Submission& submission, std::span<const Run> runs) {
    if (submission.cases->empty()) return std::nullopt;
    std::size_t passed = 0;
    for (const Run& run : runs) {
      if (!run.failure.empty()) {
        log_warning(text_of("the code reward: a program could not be run: ", run.failure));
        return std::nullopt;
      }
      passed += run.passed ? 1 : 0;
    }
    return static_cast<double>(passed) / static_cast<double>(submission.cases->size());
  }

  Sandbox sandbox_;
  SandboxProgram python_;
};

}  // namespace

CodeJudge make_code_judge(const RewardOptions& options) {
  return
      [judge = std::make_shared<const Judge>(options)](std::span<const RewardInput> batch) { return (*judge)(batch); };
}

// Equivalent to re.findall("```LANGUAGE\n(.*?)```", DOTALL)[-1]: the last of the non-overlapping matches from the left.
std::optional<std::string_view> last_code_block(std::string_view text, std::string_view language) {
  constexpr std::string_view kFence = "```";
  const std::string opening = text_of(kFence, language, "\n");
  std::optional<std::string_view> last;
  for (std::size_t at = 0;;) {
    const std::size_t open = text.find(opening, at);
    if (open == std::string_view::npos) return last;
    const std::size_t start = open + opening.size();
    const std::size_t close = text.find(kFence, start);
    if (close == std::string_view::npos) return last;
    last = text.substr(start, close - start);
    at = close + kFence.size();
  }
}

}  // namespace hone
