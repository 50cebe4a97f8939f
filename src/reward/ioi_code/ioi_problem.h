// A row of open-r1/ioi, and what of it is compiled.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "reward/judging/stored_tests.h"
#include "sandbox/compiler.h"

namespace hone {

inline constexpr std::string_view kIoiCode = "ioi_code";  // the name of the reward

struct IoiTest {
  std::string_view input;
  std::string_view output;  // empty: there is none
};

enum class IoiTask : std::uint8_t {
  batch,          // the program reads the input and prints the output
  communication,  // it talks to a manager by pipes; the manager reads the input and prints
  other,          // none that open-r1's judge knows: it gives 0
};

// Views lie in the row and in the stored tests.
struct IoiProblem {
  std::string id;
  std::vector<IoiTest> tests;
  std::vector<std::pair<std::string, std::string_view>> grader_files;  // "graders/stub.cpp", "checker/checker.cpp"
  double seconds = 0;
  double memory_bytes = 0;
  int score_precision = 2;
  IoiTask task = IoiTask::batch;
  int processes = 1;         // of the program, where it talks to a manager
  bool pipes_named = false;  // the program is told its pipes as arguments; else they are its standard streams
  std::string manager_arguments;

  [[nodiscard]] bool has(std::string_view file) const;
};

// Whether the row has its tests itself.
[[nodiscard]] bool has_test_cases(const Json& row);

// Columns: id, test_names, test_cases ({name: [input, output]}, or a list in the order of test_names; where there is no
// such column, `stored` has them by name), grader_files [[name, content], ...] of which graders/grader_config.json
// names the kind of task and its limits, time_limit in seconds, memory_limit in bytes, score_precision. Throws Error
// where one is missing or of another form.
[[nodiscard]] IoiProblem ioi_problem(const Json& row, const StoredTests& stored);

// open-r1's add_includes: the standard library's headers, the problem's, and `using namespace std` where no std:: is
// written, are put before the code.
[[nodiscard]] std::string with_includes(std::string_view code, std::string_view problem_id);

// What is compiled; the files' contents are those of `code` and of the problem, which must outlive it.
[[nodiscard]] CppProgram submission_source(const IoiProblem& problem, std::string_view code);
[[nodiscard]] CppProgram checker_source(const IoiProblem& problem);
[[nodiscard]] CppProgram manager_source(const IoiProblem& problem);

// Python's round(score, precision): of the exact value, halves to even.
[[nodiscard]] double rounded(double score, int precision);
// Python's float(text), at least 0 and at most 1: it may come from the program that is judged. 0 where it is no finite
// number.
[[nodiscard]] double score_in(std::string_view text);

}  // namespace hone
