// Reads problems of the International Olympiad in Informatics from rows of open-r1/ioi and collects the sources to
// compile.
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

inline constexpr std::string_view kIoiCode = "ioi_code";  // name of the reward

struct IoiTest {
  std::string_view input;
  std::string_view output;  // expected output; empty: none
};

enum class IoiTask : std::uint8_t {
  kBatch,          // the program reads the input and prints the output
  kCommunication,  // the program exchanges data with a manager, which reads the input and prints the score
  kOther,          // a type that open-r1's judge does not support; scores 0
};

// Problem with its tests and files. The views refer to the row and to the stored tests, which must outlive it.
struct IoiProblem {
  std::string id;
  std::vector<IoiTest> tests;
  std::vector<std::pair<std::string, std::string_view>> grader_files;  // "graders/stub.cpp", "checker/checker.cpp"
  double seconds = 0;
  double memory_bytes = 0;
  int score_precision = 2;  // decimal places
  IoiTask task = IoiTask::kBatch;
  int processes = 1;         // processes of the program in a communication task
  bool pipes_named = false;  // true: the program gets its pipes as arguments; false: as its standard streams
  std::string manager_arguments;

  [[nodiscard]] bool has(std::string_view file) const;
};

// Returns true if the row contains its tests, in the column test_cases.
[[nodiscard]] bool has_test_cases(const Json& row);

// Reads a problem from these columns:
//   id
//   test_names       list of names, which gives the order of the tests
//   test_cases       {name: [input, output]}, or a list in the order of test_names; unused if `stored` has the tests
//   grader_files     [[name, content], ...]; graders/grader_config.json names the type of the task and its limits
//   time_limit       seconds
//   memory_limit     bytes
//   score_precision  decimal places, 2 if missing
// Throws Error if a column is missing or has another form.
[[nodiscard]] IoiProblem ioi_problem(const Json& row, const StoredTests& stored);

// Returns the code with includes of the standard library and the problem's header in front, and with `using namespace
// std` unless the code contains it or "std::". Source: add_includes of open-r1.
[[nodiscard]] std::string with_includes(std::string_view code, std::string_view problem_id);

// Return the programs to compile. Their files are views into `code` and `problem`, which must outlive them.
[[nodiscard]] CppProgram submission_source(const IoiProblem& problem, std::string_view code);
[[nodiscard]] CppProgram checker_source(const IoiProblem& problem);
[[nodiscard]] CppProgram manager_source(const IoiProblem& problem);

// Rounds the exact binary value, with ties to even, as Python's round(score, precision) does.
[[nodiscard]] double rounded(double score, int precision);
// Parses a score as Python's float(text) does and clamps it to [0, 1], because the program under judgement may have
// printed it. Returns 0 if the text is not a finite number.
[[nodiscard]] double score_in(std::string_view text);

}  // namespace hone
