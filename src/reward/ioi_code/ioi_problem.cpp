#include "reward/ioi_code/ioi_problem.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "reward/judging/contest.h"

namespace hone {
namespace {

constexpr std::string_view kWhere = "the ioi_code reward";
constexpr std::string_view kConfig = "graders/grader_config.json";
constexpr int kMostPrecision = 15;
constexpr int kMostProcesses = 16;

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

const Json& array_column(const Json& row, const char* name) {
  const Json& value = column(row, name, kIoiCode);
  if (value.is_array()) return value;
  throw Error(kWhere, text_of("the column ", name, " is ", value.dump().substr(0, 40)), "it must be a list");
}

IoiTest test_of(const Json& test, std::string_view name) {
  if (!test.is_array() || test.size() < 2) {
    throw Error(kWhere, text_of("the test ", name, " is ", test.dump().substr(0, 40)), "it must be [input, output]");
  }
  return {text_in(test[0], "a test's input", kIoiCode),
          test[1].is_null() ? std::string_view() : text_in(test[1], "a test's output", kIoiCode)};
}

IoiTest stored_test(const std::vector<StoredTest>& stored, std::string_view name, std::string_view problem) {
  // The last test of a name counts, as in open-r1's dictionary.
  const auto found = std::find_if(stored.rbegin(), stored.rend(), [&](const auto& test) { return test.name == name; });
  if (found != stored.rend()) return {found->input, found->output};
  throw Error(kWhere, text_of("open-r1/ioi-test-cases has no test ", name, " of the problem ", problem));
}

std::vector<IoiTest> tests_of(const Json& row, const StoredTests& stored, std::string_view problem) {
  const Json& names = array_column(row, "test_names");
  std::vector<IoiTest> tests;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string name(text_in(names[i], "a name in test_names", kIoiCode));
    if (stored) {
      tests.push_back(stored_test(*stored, name, problem));
      continue;
    }
    const Json& cases = column(row, "test_cases", kIoiCode);
    const bool found = cases.is_array() ? i < cases.size() : cases.is_object() && cases.contains(name);
    if (!found) throw Error(kWhere, text_of("test_cases has no test ", name));
    tests.push_back(test_of(cases.is_array() ? cases[i] : cases[name], name));
  }
  return tests;
}

std::string_view content_of(const IoiProblem& problem, std::string_view name) {
  const auto place = std::ranges::find(problem.grader_files, name, [](const auto& file) { return file.first; });
  return place == problem.grader_files.end() ? std::string_view() : place->second;
}

// Applies the limits of the task's configuration. The limits of the row, with three seconds more of time, are upper
// bounds.
void read_limits(const Json& config, IoiProblem& problem) {
  constexpr double kGrace = 3;
  if (const auto seconds = number_column(config, "time_limit", kIoiCode)) {
    problem.seconds = std::min(*seconds, problem.seconds + kGrace);
  }
  if (const auto bytes = number_column(config, "memory_limit", kIoiCode)) {
    problem.memory_bytes = std::min(*bytes, problem.memory_bytes);
  }
}

// Reads graders/grader_config.json, which the Contest Management System writes: {"task_type": "Batch",
// "task_type_parameters_Communication_...": ...}.
void read_config(IoiProblem& problem) {
  const std::string_view text = content_of(problem, kConfig);
  if (text.empty()) return;
  const Json config = parse_json(text, kConfig);
  if (!config.is_object()) throw Error(kWhere, text_of(kConfig, " is not a JSON object"));
  const std::string type = config.value("task_type", "Batch");
  if (type == "Communication") {
    problem.task = IoiTask::kCommunication;
  } else if (type != "Batch") {
    problem.task = IoiTask::kOther;
    log_once(text_of(kWhere, ": tasks of the type ", type, " (", problem.id, ") score 0, as in open-r1's judge, which ",
                     "supports Batch and Communication"));
  }
  read_limits(config, problem);
  const std::string prefix = "task_type_parameters_Communication_";
  problem.processes = config.value(prefix + "num_processes", 1);
  problem.pipes_named = config.value(prefix + "user_io", "std_io") == "fifo_io";
  problem.manager_arguments = config.value(prefix + "manager_args", "");
  if (problem.processes < 1 || problem.processes > kMostProcesses) {
    throw Error(kWhere, text_of(kConfig, ": a task with ", problem.processes, " processes is not supported"),
                text_of("num_processes must be 1 to ", kMostProcesses));
  }
}

void add_grader_files(const IoiProblem& problem, CppProgram& program) {
  for (const auto& [name, content] : problem.grader_files) program.files.push_back({name, content});
}

CppProgram single_source(const IoiProblem& problem, const std::string& source) {
  CppProgram program{.flags = {"-x", "c++", "-std=gnu++17", "-O2"}, .files = {}, .sources = {source}};
  add_grader_files(problem, program);
  return program;
}

}  // namespace

bool IoiProblem::has(std::string_view file) const {
  return std::ranges::find(grader_files, file, [](const auto& entry) { return entry.first; }) != grader_files.end();
}

bool has_test_cases(const Json& row) {
  const auto place = row.find("test_cases");
  return place != row.end() && !place->is_null();
}

IoiProblem ioi_problem(const Json& row, const StoredTests& stored) {
  IoiProblem problem;
  problem.id = text_column(row, "id", kIoiCode);
  problem.tests = tests_of(row, stored, problem.id);
  for (const Json& file : array_column(row, "grader_files")) {
    if (!file.is_array() || file.size() != 2) {
      throw Error(kWhere, text_of("grader_files contains ", file.dump().substr(0, 40)), "it must be [name, content]");
    }
    if (file[1].is_null()) continue;
    const std::string_view content = text_in(file[1], "a grader file's content", kIoiCode);
    if (!content.empty())
      problem.grader_files.emplace_back(text_in(file[0], "a grader file's name", kIoiCode), content);
  }
  const std::optional<double> seconds = number_column(row, "time_limit", kIoiCode);
  const std::optional<double> memory = number_column(row, "memory_limit", kIoiCode);
  if (!seconds || !memory) throw Error(kWhere, "the row has no time_limit or no memory_limit", "in seconds and bytes");
  problem.seconds = *seconds;
  problem.memory_bytes = *memory;
  problem.score_precision = static_cast<int>(
      std::clamp(number_column(row, "score_precision", kIoiCode).value_or(2), 0.0, double{kMostPrecision}));
  try {
    read_config(problem);
  } catch (const Json::exception& error) {
    throw Error(kWhere, text_of(kConfig, ": ", error.what()));
  }
  if (problem.task == IoiTask::kCommunication && !problem.has("graders/manager.cpp")) {
    throw Error(kWhere, "grader_files of a Communication task lacks graders/manager.cpp");
  }
  return problem;
}

std::string with_includes(std::string_view code, std::string_view problem_id) {
  const std::string header = text_of("#include \"", problem_id, ".h\"");
  std::string all = "#include <bits/stdc++.h>\n";
  if (code.find(header) == std::string_view::npos) all += header + "\n";
  const bool named =
      code.find("using namespace std;") != std::string_view::npos || code.find("std::") != std::string_view::npos;
  if (!named) all += "\nusing namespace std;\n\n";
  return all.append(code);
}

CppProgram submission_source(const IoiProblem& problem, std::string_view code) {
  const std::string name = text_of("graders/", lower(problem.id), ".cpp");
  CppProgram program{.flags = {"-DEVAL", "-std=gnu++17", "-O2", "-pipe", "-s"}, .files = {}, .sources = {name}};
  add_grader_files(problem, program);
  // The submission must not see the files that judge it.
  std::erase_if(program.files, [&](const SandboxFile& file) {
    return file.name == name || file.name == "graders/manager.cpp" || file.name.starts_with("checker/");
  });
  program.files.push_back({name, code});
  for (const char* grader : {"graders/grader.cpp", "graders/stub.cpp"}) {
    if (problem.has(grader)) program.sources.emplace_back(grader);
  }
  return program;
}

CppProgram checker_source(const IoiProblem& problem) { return single_source(problem, "checker/checker.cpp"); }
CppProgram manager_source(const IoiProblem& problem) { return single_source(problem, "graders/manager.cpp"); }

double rounded(double score, int precision) {
  std::array<char, 400> text;
  std::snprintf(text.data(), text.size(), "%.*f", precision, score);
  return std::strtod(text.data(), nullptr);
}

double score_in(std::string_view text) {
  text = trim(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double score = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), score);
  const bool is_number = error == std::errc{} && end == text.data() + text.size() && std::isfinite(score);
  return is_number ? std::clamp(score, 0.0, 1.0) : 0.0;
}

}  // namespace hone
