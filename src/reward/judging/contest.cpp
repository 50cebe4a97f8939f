#include "reward/judging/contest.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/parallel.h"

namespace hone {
namespace {

constexpr std::uint64_t kLeastMemory = 64ULL << 20;
constexpr double kMostMemory = 64.0 * (1ULL << 30);
constexpr double kMostSeconds = 600;
// The sandbox's first process, a shell, the program and one thread of it: contests allow one process.
constexpr std::int64_t kContestProcesses = 4;

// One test of one completion, in the order of execution.
struct Turn {
  std::size_t batch = 0;
  std::size_t run = 0;
  std::size_t test = 0;
};

std::vector<Turn> turns_of(std::span<const ContestRun> runs, std::int64_t batch_size) {
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (std::size_t test = 0; test < runs[i].tests; ++test) {
      turns.push_back({batch_size < 1 ? 0 : test / static_cast<std::size_t>(batch_size), i, test});
    }
  }
  std::ranges::stable_sort(turns, {}, &Turn::batch);
  return turns;
}

// Maximum number of completions in a part, whose binaries are in memory together.
constexpr std::size_t kMostInPart = (std::size_t{512} << 20) / kMostBinaryBytes;

// Returns the stored tests of the next part: of as many of the first completions as the limits on memory permit, but of
// at least one.
std::vector<StoredTests> stored_tests_of_part(const ContestJudge& judge, std::span<const RewardInput> rest) {
  std::vector<StoredTests> stored;
  std::unordered_set<const void*> counted;
  std::size_t bytes = 0;
  for (const RewardInput& input : rest) {
    if (bytes >= judge.most_stored_bytes || stored.size() == kMostInPart) break;
    stored.push_back(judge.stored_tests(input));
    const StoredTests& tests = stored.back();
    if (tests && counted.insert(tests.get()).second) bytes += bytes_of(*tests);
  }
  return stored;
}

void judge_part(const ContestJudge& judge, std::span<const RewardInput> batch, std::span<const StoredTests> stored,
                RewardScores& scores) {
  std::vector<ContestVerdict> verdicts(batch.size());
  run_many(batch.size(), 0, [&](std::size_t i) { verdicts[i] = judge.prepare(batch[i], stored[i]); });
  std::vector<ContestRun> runs;
  runs.reserve(batch.size());
  for (const ContestVerdict& verdict : verdicts) runs.push_back(verdict.has_settled ? ContestRun{} : verdict.run);
  const std::vector<ContestScores> ran = run_contest(runs, judge.batch_size);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (verdicts[i].has_settled) {
      scores.push_back(verdicts[i].settled);
    } else if (!ran[i].failure.empty()) {
      log_warning(text_of("the ", judge.reward,
                          " reward: a program could not be run, its completion gets no score: ", ran[i].failure));
      scores.emplace_back();
    } else {
      scores.emplace_back(verdicts[i].score(ran[i].tests));
    }
  }
}

}  // namespace

std::vector<ContestScores> run_contest(std::span<const ContestRun> runs, std::int64_t batch_size) {
  std::vector<ContestScores> scores(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) scores[i].tests.assign(runs[i].tests, 0.0);
  const std::vector<Turn> turns = turns_of(runs, batch_size);
  constexpr std::size_t kNever = static_cast<std::size_t>(-1);
  std::vector<std::atomic<std::size_t>> stopped_in(runs.size());  // [runs] batch with the first failure
  std::vector<std::string> failures(turns.size());
  for (std::atomic<std::size_t>& batch : stopped_in) batch = kNever;
  // run_many() begins the turns in order, so all tests of a batch begin before those of later batches.
  run_many(turns.size(), 0, [&](std::size_t i) {
    const Turn& turn = turns[i];
    if (turn.batch > stopped_in[turn.run]) return;
    ContestTest test = runs[turn.run].run(turn.test);
    failures[i] = std::move(test.failure);
    scores[turn.run].tests[turn.test] = test.score;
    if (failures[i].empty() && test.score == 0.0 && runs[turn.run].stops)
      stopped_in[turn.run] = std::min<std::size_t>(turn.batch, stopped_in[turn.run]);
  });
  for (std::size_t i = 0; i < turns.size(); ++i) {
    std::string& failure = scores[turns[i].run].failure;
    if (failure.empty()) failure = std::move(failures[i]);
  }
  return scores;
}

RewardScores judge_contest(const ContestJudge& judge, std::span<const RewardInput> batch) {
  RewardScores scores;
  scores.reserve(batch.size());
  while (scores.size() < batch.size()) {
    const std::span<const RewardInput> rest = batch.subspan(scores.size());
    const std::vector<StoredTests> stored = stored_tests_of_part(judge, rest);
    judge_part(judge, rest.first(stored.size()), stored, scores);
  }
  return scores;
}

void check_batch_size(std::int64_t batch_size) {
  if (batch_size == -1 || batch_size >= 1) return;
  throw Error("code_eval_test_batch_size", text_of(batch_size), "use at least 1, or -1 for all tests");
}

const Json& column(const Json& row, const char* name, std::string_view reward) {
  const auto place = row.find(name);
  if (place == row.end()) throw Error(text_of("the ", reward, " reward"), text_of("the row has no column ", name));
  return *place;
}

std::string_view text_in(const Json& value, std::string_view what, std::string_view reward) {
  if (value.is_string()) return value.get_ref<const std::string&>();
  throw Error(text_of("the ", reward, " reward"), text_of(what, " is ", value.dump().substr(0, 40)),
              "it must be a text");
}

std::string text_column(const Json& row, const char* name, std::string_view reward) {
  return std::string(text_in(column(row, name, reward), text_of("the column ", name), reward));
}

std::optional<double> number_column(const Json& row, const char* name, std::string_view reward) {
  const auto place = row.find(name);
  if (place == row.end() || place->is_null()) return std::nullopt;
  if (place->is_number()) return place->get<double>();
  throw Error(text_of("the ", reward, " reward"), text_of("the column ", name, " is ", place->dump().substr(0, 40)),
              "it must be a number");
}

SandboxLimits contest_limits(double seconds, double memory_bytes, std::size_t expected_bytes) {
  const double limited = std::isfinite(seconds) ? std::clamp(seconds, 0.0, kMostSeconds) : kMostSeconds;
  SandboxLimits limits;
  limits.wall_time = std::chrono::milliseconds(static_cast<std::int64_t>(limited * 1000));
  limits.cpu_seconds = static_cast<std::int64_t>(limited) + 2;
  const double memory = std::isfinite(memory_bytes) ? std::clamp(memory_bytes, 0.0, kMostMemory) : kMostMemory;
  limits.memory_bytes = std::max(kLeastMemory, static_cast<std::uint64_t>(memory));
  limits.output_bytes = (1ULL << 20) + 4 * expected_bytes;
  limits.file_bytes = std::max(limits.file_bytes, limits.output_bytes);
  limits.disk_bytes = std::max(limits.disk_bytes, 2 * limits.output_bytes);
  limits.processes = kContestProcesses;
  limits.deep_stack = true;
  return limits;
}

}  // namespace hone
