// What the rewards for contest problems share: programs, tests that stop at a failure, and columns of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "reward/judging/stored_tests.h"
#include "reward/reward.h"
#include "sandbox/compiler.h"
#include "sandbox/runner.h"

namespace hone {

// One completion's tests.
struct ContestRun {
  std::size_t tests = 0;
  // Runs one test: its score, or nothing where it could not be run. From any thread, several tests at a time.
  std::function<std::optional<double>(std::size_t test)> run;
  bool stops = false;  // after a test of score 0 no later batch is begun
};

struct ContestScores {
  std::vector<double> tests;   // 0 for those that were not begun
  bool failed_to_run = false;  // a test could not be run
};

// Runs all tests, `batch_size` of a completion after each other in turn with other completions' (-1: all), as many at a
// time as there are threads. What stops a run changes none of the scores that come from it: a failure makes them 0.
[[nodiscard]] std::vector<ContestScores> run_contest(std::span<const ContestRun> runs, std::int64_t batch_size);

// A reward that judges by tests: prepares each completion's run, then runs all, then scores.
struct ContestVerdict {
  std::optional<double> settled;  // the score, where no test needs to run
  bool has_settled = false;
  ContestRun run;
  std::function<double(std::span<const double> tests)> score;
};
struct ContestJudge {
  std::string_view reward;      // its name
  std::int64_t batch_size = 1;  // as in run_contest
  // The tests of a completion that are kept apart from its row; null where there are none. One call at a time.
  std::function<StoredTests(const RewardInput&)> stored_tests;
  std::function<ContestVerdict(const RewardInput&, const StoredTests&)> prepare;  // from any thread
  std::size_t most_stored_bytes = kMostStoredBytes;
};
// Completions are judged in parts, so that stored tests of a part are not many more bytes than that (one problem's at
// most) and their binaries no more than 512 MiB.
[[nodiscard]] RewardScores judge_contest(const ContestJudge& judge, std::span<const RewardInput> batch);

// Throws Error where the key is neither -1 nor at least 1.
void check_batch_size(std::int64_t batch_size);

// Columns. `reward` stands in the Error that they throw where the column is missing or of another kind.
[[nodiscard]] const Json& column(const Json& row, const char* name, std::string_view reward);
[[nodiscard]] std::string text_column(const Json& row, const char* name, std::string_view reward);
// Nothing where it is missing or null.
[[nodiscard]] std::optional<double> number_column(const Json& row, const char* name, std::string_view reward);
// The text, a view into the row.
[[nodiscard]] std::string_view text_in(const Json& value, std::string_view what, std::string_view reward);

// Seconds of wall time and bytes of address space as limits of a program that is judged. Some memory is always given,
// for a program to start in. Its output may be some times what is expected.
[[nodiscard]] SandboxLimits contest_limits(double seconds, double memory_bytes, std::size_t expected_bytes);

}  // namespace hone
