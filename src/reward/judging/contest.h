// Shared parts of the rewards for programming contests: runs tests in parallel, stops at failures and reads columns.
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

// Result of one test.
struct ContestTest {
  double score = 0;
  std::string failure;  // why it could not be run; empty if it ran
};

// Tests of one completion.
struct ContestRun {
  std::size_t tests = 0;                             // number of tests
  std::function<ContestTest(std::size_t test)> run;  // runs one test; called concurrently from several threads
  bool stops = false;  // after a test with score 0, do not begin later batches of this completion
};

struct ContestScores {
  std::vector<double> tests;  // [tests]; 0 for tests that were not begun
  std::string failure;        // why a test could not be run; empty if all ran
};

// Runs all tests on thread_count() threads: first the first `batch_size` tests of every completion, then the next ones,
// and so on (-1: all tests in one batch). Which tests of a stopped run are skipped may depend on timing, but its final
// score may not: callers set `stops` only if one failure makes the score 0.
[[nodiscard]] std::vector<ContestScores> run_contest(std::span<const ContestRun> runs, std::int64_t batch_size);

// Prepared judgement of one completion: either a score that is known without tests, or a run and the function that
// computes the score from its tests.
struct ContestVerdict {
  std::optional<double> settled;  // score if `has_settled`; nothing: no score
  bool has_settled = false;       // no test needs to run
  ContestRun run;
  std::function<double(std::span<const double> tests)> score;
};
// Reward that judges by tests.
struct ContestJudge {
  std::string_view reward;      // name of the reward
  std::int64_t batch_size = 1;  // as in run_contest()
  // Returns the tests of a completion that are stored outside of its row, or null. Never called concurrently.
  std::function<StoredTests(const RewardInput&)> stored_tests;
  // Prepares the judgement of a completion. Called concurrently from several threads.
  std::function<ContestVerdict(const RewardInput&, const StoredTests&)> prepare;
  std::size_t most_stored_bytes = kMostStoredBytes;
};
// Judges a batch: prepares the completions, runs their tests and computes the scores. Works in parts to bound memory:
// the stored tests of a part exceed most_stored_bytes by at most those of one problem, and its binaries take at most
// 512 MiB.
[[nodiscard]] RewardScores judge_contest(const ContestJudge& judge, std::span<const RewardInput> batch);

// Throws Error unless the value of code_eval_test_batch_size is -1 or at least 1.
void check_batch_size(std::int64_t batch_size);

// Return a column of the row. Throw Error, naming `reward`, if the column is missing or has another type.
[[nodiscard]] const Json& column(const Json& row, const char* name, std::string_view reward);
[[nodiscard]] std::string text_column(const Json& row, const char* name, std::string_view reward);
// Like column(), but returns nothing if the column is missing or null.
[[nodiscard]] std::optional<double> number_column(const Json& row, const char* name, std::string_view reward);
// Returns the text of `value`, a view into it. Throws Error, naming `what` and `reward`, if it is not a text.
[[nodiscard]] std::string_view text_in(const Json& value, std::string_view what, std::string_view reward);

// Returns sandbox limits for a judged program with this wall time in seconds (at most 600) and address space in bytes
// (64 MiB, so that the program can start, to 64 GiB). Its output may be 1 MiB plus four times `expected_bytes`.
[[nodiscard]] SandboxLimits contest_limits(double seconds, double memory_bytes, std::size_t expected_bytes);

}  // namespace hone
