// Tasks lcb and lcb_v4: code generation of LiveCodeBench (livecodebench/code_generation_lite). Programs and functions
// run in the sandbox.
#include <algorithm>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "eval/lcb/program_tests.h"
#include "eval/lcb/test_runner.h"
#include "eval/math_task.h"
#include "eval/registry.h"
#include "reward/tags.h"
#include "sandbox/runner.h"

namespace hone {
namespace {

constexpr int kSeconds = 6;  // time limit of one test, and of loading the solution

std::string prompt_of(const Json& row) {
  const std::string question = column_text(row, "question_content");
  if (question.empty()) throw Error("", "lcb needs the column 'question_content'");
  std::string text =
      "You will be given a question (problem specification) and will generate a correct Python program that matches "
      "the specification and passes all tests.\n\nQuestion: " +
      question + "\n\n";
  const std::string starter = column_text(row, "starter_code");
  if (starter.empty()) {
    return text +
           "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the "
           "sample inputs). Enclose your code within delimiters as follows. Ensure that when the python program runs, "
           "it reads the inputs, runs the algorithm and writes output to STDOUT.\n```python\n# YOUR CODE "
           "HERE\n```\n\n";
  }
  return text +
         "You will use the following starter code to write the solution to the problem and enclose your code within "
         "delimiters.\n```python\n" +
         starter + "\n```\n\n";
}

// Returns the lines between the last two lines that contain a fence; empty if there are fewer than two.
std::string code_in(std::string_view text) {
  std::vector<std::string> lines = split(text, '\n');
  std::vector<std::size_t> fences;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find("```") != std::string::npos) fences.push_back(i);
  }
  if (fences.size() < 2) return {};
  const std::size_t begin = fences[fences.size() - 2] + 1;
  return join(std::span(lines).subspan(begin, fences.back() - begin), "\n");
}

class ProgramJudge {
 public:
  ProgramJudge(SandboxMode mode, std::vector<std::string> hidden)
      : sandbox_(mode, std::move(hidden)), python_(find_python(sandbox_)) {}

  [[nodiscard]] bool passes(const std::string& code, const ProgramTests& tests) const {
    SandboxProgram program = python_;
    program.arguments.emplace_back("runner.py");
    program.files = {{"runner.py", kTestRunner}, {"solution.py", code}};
    const Json task = {{"inputs", tests.inputs},
                       {"function", tests.function.empty() ? Json(nullptr) : Json(tests.function)}};
    const SandboxResult result =
        sandbox_.run(program, task.dump(-1, ' ', true, Json::error_handler_t::replace), limits(tests));
    if (result.failure.empty()) return all_right(result.output, tests);
    log_warning(text_of("lcb: a program could not be run; its answer scores 0: ", result.failure));
    return false;
  }

 private:
  static SandboxLimits limits(const ProgramTests& tests) {
    const auto count = static_cast<std::int64_t>(tests.inputs.size());
    std::size_t expected = 0;
    for (const std::string& output : tests.outputs) expected += output.size();
    SandboxLimits limits;
    limits.cpu_seconds = (kSeconds + 1) * count + 5;  // LiveCodeBench's limit for all tests together
    limits.wall_time = std::chrono::seconds(limits.cpu_seconds);
    limits.silence = std::chrono::seconds(kSeconds);
    limits.memory_bytes = std::uint64_t{4} << 30;
    limits.output_bytes = (std::uint64_t{4} << 20) + 8 * expected;
    return limits;
  }

  static bool all_right(std::string_view output, const ProgramTests& tests) {
    const std::vector<std::string> lines = split(trim(output), '\n');
    if (lines.size() != 1 + tests.outputs.size()) return false;
    for (std::size_t i = 0; i < tests.outputs.size(); ++i) {
      const Json answer = Json::parse(lines[i + 1], nullptr, false);
      if (!answer.is_object()) return false;
      const bool right = tests.function.empty()
                             ? answer.contains("out") && answer["out"].is_string() &&
                                   same_lines(answer["out"].get_ref<const std::string&>(), tests.outputs[i])
                             : answer.contains("value") &&
                                   same_value(answer["value"], parse_json(tests.outputs[i], "a test's output"));
      if (!right) return false;
    }
    return true;
  }

  Sandbox sandbox_;
  SandboxProgram python_;
};

// Reads a problem. It keeps the columns with the tests in their compressed form, because tests can be large.
EvalProblem read_row(const Json& row, const std::string& prompt_template) {
  const ProgramTests tests = read_program_tests(row);
  EvalProblem problem;
  problem.id = column_text(row, "question_id");
  problem.prompt = prompt_template.empty() ? prompt_of(row) : fill_template(prompt_template, row);
  problem.gold = text_of(tests.inputs.size(), " tests");
  Json kept = Json::object();
  for (const char* column : {"public_test_cases", "private_test_cases", "metadata"}) kept[column] = row[column];
  problem.material = kept.dump(-1, ' ', false, Json::error_handler_t::replace);
  return problem;
}

EvalTask make_lcb(const TaskOptions& options, std::vector<std::string> files) {
  EvalTask task;
  task.dataset = "livecodebench/code_generation_lite";
  task.dataset_split = "test";
  task.files = std::move(files);
  task.samples = 16;
  task.votes = false;
  const auto judge = std::make_shared<const ProgramJudge>(options.sandbox, options.hidden);
  task.read = [prompt = options.prompt_template](const Json& row) { return read_row(row, prompt); };
  task.judge = [judge, strip = options.strip_thoughts](const EvalProblem& problem, std::string_view completion) {
    const std::string code = code_in(strip ? without_thoughts(completion) : completion);
    if (code.empty()) return Judgement{};
    const ProgramTests tests = read_program_tests(parse_json(problem.material, "lcb"));
    return Judgement{code, judge->passes(code, tests) ? 1.0 : 0.0};
  };
  return task;
}

}  // namespace

void register_lcb(TaskRegistry& registry) {
  registry.add("lcb", [](const TaskOptions& options) { return make_lcb(options, {"test4.jsonl", "test5.jsonl"}); });
  registry.add("lcb_v4", [](const TaskOptions& options) { return make_lcb(options, {"test4.jsonl"}); });
}

}  // namespace hone
