// Tests of the rate at which connections are opened.
#include "hub/connection_gate.h"

#include <gtest/gtest.h>

namespace hone::test {
namespace {

using Clock = ConnectionRateLimiter::Clock;

TEST(ConnectionRateLimiter, AFewAtOnceAndTheNextWhenOneIsAnswered) {
  ConnectionRateLimiter pace;
  const Clock::time_point now{std::chrono::hours(1)};
  for (int i = 0; i < ConnectionRateLimiter::kMostUnanswered; ++i) EXPECT_EQ(pace.open(now), now);
  EXPECT_GT(pace.open(now), now);
  pace.answered();
  EXPECT_EQ(pace.open(now), now);
  EXPECT_GT(pace.open(now), now);
}

TEST(ConnectionRateLimiter, WhoIsNotAnsweredKeepsNobodyOutForLong) {
  ConnectionRateLimiter pace;
  Clock::time_point now{std::chrono::hours(1)};
  for (int i = 0; i < ConnectionRateLimiter::kMostUnanswered; ++i) (void)pace.open(now);
  for (int i = 0; i < 100; ++i) {
    const Clock::time_point next = pace.open(now);
    EXPECT_EQ(next, now + ConnectionRateLimiter::kPause);
    EXPECT_EQ(pace.open(next), next);
    now = next;
  }
}

TEST(ConnectionGate, NobodyWaitsWhoIsOver) {
  ConnectionGate gate;
  for (int i = 0; i < ConnectionRateLimiter::kMostUnanswered; ++i) EXPECT_TRUE(gate.enter([] { return false; }));
  EXPECT_FALSE(gate.enter([] { return true; }));
}

}  // namespace
}  // namespace hone::test
