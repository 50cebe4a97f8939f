#include "reward/sandbox/judge_code.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "reward/sandbox/outputs.h"
#include "reward/sandbox/runner.h"

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
    refuse(text_of("a test case has no text `", key, "`"));
  }
  return test[key].get<std::string>();
}

// The column may hold its object as JSON in a string, as data sets with rows of several forms do.
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

// One completion: its program, its cases, and where its tasks stand among those of the batch.
struct Submission {
  SandboxProgram program;
  std::shared_ptr<const std::vector<TestCase>> cases;
  std::size_t first_task = 0;
  bool runs = false;
};

std::optional<double> share_passed(const Submission& submission, std::span<const SandboxResult> results) {
  const std::vector<TestCase>& cases = *submission.cases;
  if (cases.empty()) return std::nullopt;
  if (!submission.runs) return 0.0;
  std::size_t passed = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const SandboxResult& result = results[submission.first_task + i];
    if (!result.failure.empty()) {
      log_warning(text_of("the code reward: a program could not be run: ", result.failure));
      return std::nullopt;
    }
    passed += result.succeeded() && same_output(result.output, cases[i].output) ? 1 : 0;
  }
  return static_cast<double>(passed) / static_cast<double>(cases.size());
}

class Judge {
 public:
  explicit Judge(SandboxMode mode) : sandbox_(mode), python_(find_python(sandbox_)) {}

  std::vector<std::optional<double>> operator()(std::span<const RewardInput> batch) const {
    std::deque<Submission> submissions;  // tasks point into it
    std::vector<SandboxTask> tasks;
    const Json* row = nullptr;  // completions of a group follow each other and share it
    for (const RewardInput& input : batch) {
      Submission submission;
      submission.cases = row != nullptr && input.row == row
                             ? submissions.back().cases
                             : std::make_shared<const std::vector<TestCase>>(test_cases(*input.row));
      row = input.row;
      const std::optional<std::string_view> code = last_code_block(input.completion, "python");
      submission.runs = code.has_value();
      submission.first_task = tasks.size();
      if (code) {
        submission.program = python_;
        submission.program.arguments.emplace_back("program.py");
        submission.program.files.push_back({"program.py", *code});
      }
      submissions.push_back(std::move(submission));
      if (!code) continue;
      for (const TestCase& test : *submissions.back().cases) {
        tasks.push_back({&submissions.back().program, test.input, {}});
      }
    }
    const std::vector<SandboxResult> results = sandbox_.run(tasks);
    std::vector<std::optional<double>> shares;
    shares.reserve(submissions.size());
    for (const Submission& submission : submissions) shares.push_back(share_passed(submission, results));
    return shares;
  }

 private:
  Sandbox sandbox_;
  SandboxProgram python_;
};

}  // namespace

CodeJudge make_code_judge(const RewardOptions& options) {
  return [judge = std::make_shared<const Judge>(options.sandbox)](std::span<const RewardInput> batch) {
    return (*judge)(batch);
  };
}

// re.findall("```LANGUAGE\n(.*?)```", DOTALL)[-1]: matches from the left that do not overlap, the last of them.
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
