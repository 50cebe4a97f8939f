// Tests comparisons in worker processes: order, time limits, deaths of workers, and remaining processes.
#include "math_equality/workers.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

namespace hone {
namespace {

using std::chrono::milliseconds;

bool exists(pid_t id) { return ::kill(id, 0) == 0 || errno != ESRCH; }

MathOutcome outcome_of(MathWorkers& workers, const std::string& gold, const std::string& text) {
  return workers.compare(reward_comparison(gold, text));
}

TEST(MathWorkers, outcomes_come_in_order) {
  MathWorkers workers({.workers = 3});
  std::vector<std::string> golds;
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i) {
    golds.push_back(i % 7 == 0 ? "no gold here" : std::to_string(i));
    texts.push_back("\\boxed{" + std::to_string(i % 3 == 0 ? i + 1 : i) + "}");
  }
  std::vector<MathComparison> comparisons;
  for (std::size_t i = 0; i < golds.size(); ++i) comparisons.push_back(reward_comparison(golds[i], texts[i]));
  const std::vector<MathOutcome> outcomes = workers.compare(comparisons);
  ASSERT_EQ(outcomes.size(), golds.size());
  for (std::size_t i = 0; i < golds.size(); ++i) {
    const MathVerdict expected = i % 7 == 0   ? MathVerdict::kNoGold
                                 : i % 3 == 0 ? MathVerdict::kDifferent
                                              : MathVerdict::kEqual;
    EXPECT_EQ(outcomes[i].verdict, expected) << i;
    if (i % 7 != 0) {
      EXPECT_EQ(outcomes[i].extracted, std::to_string(i % 3 == 0 ? i + 1 : i));
    }
  }
  EXPECT_TRUE(workers.compare(std::span<const MathComparison>{}).empty());
}

TEST(MathWorkers, texts_larger_than_any_pipe_pass) {
  MathWorkers workers({.workers = 2});
  const std::string text = std::string(600'000, 'x') + " \\boxed{6}";
  std::vector<MathComparison> comparisons(9, reward_comparison("6", text));
  for (const MathOutcome& outcome : workers.compare(comparisons)) EXPECT_EQ(outcome.verdict, MathVerdict::kEqual);
}

// Parsing this text alone exceeds the work limit on every machine.
TEST(MathWorkers, a_comparison_that_takes_too_long_costs_its_worker) {
  const std::string text = std::string(50'000'000, 'x') + " \\boxed{6}";
  MathWorkers workers({.workers = 1, .limit = milliseconds(1)});
  const pid_t server = workers.processes().at(0);
  const pid_t worker = workers.processes().at(1);
  EXPECT_EQ(outcome_of(workers, "6", text).verdict, MathVerdict::kTooLong);
  ASSERT_EQ(workers.processes().size(), 2u);
  EXPECT_EQ(workers.processes()[0], server);
  EXPECT_NE(workers.processes()[1], worker);
  EXPECT_FALSE(exists(worker)) << "a zombie, or still alive";
}

// A worker that stalls, for however long, must not lead to a verdict, because it uses no CPU time.
TEST(MathWorkers, a_worker_that_stands_still_costs_nothing) {
  MathWorkers workers({.workers = 1, .wait = milliseconds(100)});
  ASSERT_EQ(outcome_of(workers, "6", "\\boxed{6}").verdict, MathVerdict::kEqual);
  const std::vector<pid_t> before = workers.processes();
  ASSERT_EQ(before.size(), 2u);
  ASSERT_EQ(::kill(before[1], SIGSTOP), 0);
  const std::vector<MathComparison> comparisons(5, reward_comparison("6", "\\boxed{6}"));
  for (const MathOutcome& outcome : workers.compare(comparisons)) EXPECT_EQ(outcome.verdict, MathVerdict::kEqual);
  const std::vector<pid_t> after = workers.processes();
  ASSERT_EQ(after.size(), 2u);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NE(after[1], before[1]);
  EXPECT_FALSE(exists(before[1])) << "a zombie, or still alive";
}

TEST(MathWorkers, a_worker_that_dies_costs_nothing) {
  MathWorkers workers({.workers = 1});
  const pid_t worker = workers.processes().at(1);
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  EXPECT_EQ(outcome_of(workers, "6", "\\boxed{6}").verdict, MathVerdict::kEqual);
  EXPECT_FALSE(exists(worker));
}

TEST(MathWorkers, a_server_that_dies_is_started_again) {
  MathWorkers workers({.workers = 1});
  const pid_t server = workers.processes().at(0);
  ASSERT_EQ(::kill(server, SIGKILL), 0);
  ASSERT_EQ(::kill(workers.processes().at(1), SIGKILL), 0);  // it would die with its server, but perhaps later
  EXPECT_EQ(outcome_of(workers, "6", "\\boxed{6}").verdict, MathVerdict::kEqual);
  EXPECT_NE(workers.processes().at(0), server);
}

TEST(MathWorkers, several_threads_share_them) {
  MathWorkers workers({.workers = 2});
  std::vector<int> equal(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string number = std::to_string(100 * t + static_cast<std::size_t>(i));
        equal[t] += outcome_of(workers, number, "\\boxed{" + number + "}").verdict == MathVerdict::kEqual ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : equal) EXPECT_EQ(count, 50);
}

TEST(MathWorkers, nothing_is_left_behind) {
  std::vector<pid_t> processes;
  {
    MathWorkers workers({.workers = 2});
    const std::vector<MathComparison> comparisons(40, reward_comparison("6", "\\boxed{6}"));
    (void)workers.compare(comparisons);
    processes = workers.processes();
    ASSERT_EQ(processes.size(), 3u);
    for (const pid_t id : processes) EXPECT_TRUE(exists(id));
  }
  for (const pid_t id : processes) EXPECT_FALSE(exists(id)) << id;
}

TEST(MathWorkers, are_shared_while_they_are_used) {
  auto first = shared_math_workers();
  const pid_t server = first->processes().at(0);
  EXPECT_EQ(shared_math_workers(), first);
  first.reset();
  EXPECT_FALSE(exists(server));
}

}  // namespace
}  // namespace hone
