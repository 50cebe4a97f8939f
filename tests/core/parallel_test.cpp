#include "core/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace hone {
namespace {

// Restores the number of threads after each test.
class ParallelTest : public testing::Test {
 protected:
  ~ParallelTest() override { set_thread_count(before_); }

 private:
  int before_ = thread_count();
};

using Ranges = std::set<std::pair<std::int64_t, std::int64_t>>;

Ranges ranges_of(std::int64_t count, std::int64_t grain) {
  std::vector<std::pair<std::int64_t, std::int64_t>> slots(static_cast<std::size_t>(count) + 1, {-1, -1});
  parallel_for(count, grain,
               [&](std::int64_t begin, std::int64_t end) { slots[static_cast<std::size_t>(begin)] = {begin, end}; });
  Ranges ranges(slots.begin(), slots.end());
  ranges.erase({-1, -1});
  return ranges;
}

TEST_F(ParallelTest, RangesCoverTheCountAndAreAsLongAsTheGrain) {
  for (const int threads : {1, 2, 3, 7}) {
    set_thread_count(threads);
    for (const std::int64_t count : {1, 2, 6, 7, 100, 1001}) {
      for (const std::int64_t grain : {0, 1, 10, 5000}) {
        const Ranges ranges = ranges_of(count, grain);
        std::int64_t at = 0;
        for (const auto& [begin, end] : ranges) {
          EXPECT_EQ(begin, at);
          EXPECT_GT(end, begin);
          at = end;
        }
        EXPECT_EQ(at, count);
        const std::int64_t wanted = grain == 5000 ? 1 : grain == 10 ? (count + 9) / 10 : count;
        EXPECT_EQ(std::ssize(ranges), std::min<std::int64_t>(wanted, threads));
      }
    }
  }
  EXPECT_TRUE(ranges_of(0, 1).empty());
}

// Every part runs once and has finished when the call returns, also directly after another loop.
TEST_F(ParallelTest, ManyShortLoopsAreWhole) {
  set_thread_count(4);
  for (int round = 0; round < 20000; ++round) {
    std::vector<int> values(static_cast<std::size_t>(2 + round % 5), 0);
    parallel_for(std::ssize(values), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] += round;
    });
    ASSERT_EQ(values, std::vector<int>(values.size(), round));
  }
}

TEST_F(ParallelTest, PartsRunAtTheSameTime) {
  set_thread_count(3);
  std::atomic<int> waiting = 0;
  std::set<std::thread::id> threads;
  std::mutex mutex;
  parallel_for(3, 1, [&](std::int64_t, std::int64_t) {
    ++waiting;
    while (waiting < 3) std::this_thread::yield();  // never ends if the parts run one after another
    const std::scoped_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(waiting, 3);
  EXPECT_EQ(threads.size(), 3u);
}

// An exception on a worker does not end the process, and the pool works on.
TEST_F(ParallelTest, TheExceptionOfTheLowestPartIsRethrown) {
  set_thread_count(4);
  std::barrier<> all_started(4);
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::atomic<int> ended = 0;
    const auto body = [&](std::int64_t begin, std::int64_t) {
      all_started.arrive_and_wait();
      ++ended;
      if (begin >= 2) throw std::runtime_error("part " + std::to_string(begin));
    };
    try {
      parallel_for(4, 1, body);
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "part 2");
    }
    EXPECT_EQ(ended, 4);
  }
}

TEST_F(ParallelTest, InsideAPartALoopRunsOnItsThread) {
  set_thread_count(3);
  std::atomic<int> strangers = 0;
  std::vector<std::int64_t> sums(6, 0);
  parallel_for(6, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto self = std::this_thread::get_id();
      parallel_for(50, 1, [&](std::int64_t first, std::int64_t last) {
        if (std::this_thread::get_id() != self) ++strangers;
        for (std::int64_t k = first; k < last; ++k) sums[static_cast<std::size_t>(i)] += k;
      });
    }
  });
  EXPECT_EQ(strangers, 0);
  EXPECT_EQ(sums, std::vector<std::int64_t>(6, 49 * 50 / 2));
}

TEST_F(ParallelTest, SeveralThreadsMayCall) {
  set_thread_count(3);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&wrong] {
      for (int round = 0; round < 2000; ++round) {
        std::vector<int> values(5, 0);
        parallel_for(5, 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) ++values[static_cast<std::size_t>(i)];
        });
        if (values != std::vector<int>(5, 1)) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

// A forked child has no workers, so its calling thread runs all parts.
TEST_F(ParallelTest, AForkedChildGoesOnAlone) {
  set_thread_count(3);
  ASSERT_EQ(ranges_of(3, 1).size(), 3u);
  const pid_t child = ::fork();
  if (child == 0) {
    std::int64_t sum = 0;
    for (int round = 0; round < 100; ++round) {
      std::vector<std::int64_t> values(3, 0);
      parallel_for(3, 1, [&](std::int64_t begin, std::int64_t) { values[static_cast<std::size_t>(begin)] = 1; });
      sum += std::accumulate(values.begin(), values.end(), std::int64_t{0});
    }
    ::_exit(sum == 300 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(RunMany, CallsOnceEachAsManyAtATimeAsAsked) {
  constexpr int kCount = 40;
  constexpr int kWorkers = 3;
  std::vector<std::atomic<int>> calls(kCount);
  std::atomic<int> running = 0;
  std::atomic<bool> too_many = false;
  run_many(kCount, kWorkers, [&](std::size_t i) {
    if (++running > kWorkers) too_many = true;
    ++calls[i];
    std::this_thread::yield();
    --running;
  });
  for (const std::atomic<int>& one : calls) EXPECT_EQ(one, 1);
  EXPECT_FALSE(too_many);
}

// Each call waits for the others, which needs as many threads as calls.
TEST(RunMany, AsManyWorkersAsCallsAllRunAtOnce) {
  std::barrier<> all_here(5);
  run_many(5, 5, [&](std::size_t) { all_here.arrive_and_wait(); });
}

TEST(RunMany, TheFirstExceptionEndsTheLoop) {
  std::atomic<int> calls = 0;
  EXPECT_THROW(run_many(1000, 1,
                        [&](std::size_t i) {
                          ++calls;
                          if (i == 2) throw std::runtime_error("third");
                        }),
               std::runtime_error);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace hone
