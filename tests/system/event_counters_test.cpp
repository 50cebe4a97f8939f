// Tests the counters of events, as far as the machine allows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "system/event_counters.h"

namespace hone::test {
namespace {

constexpr std::size_t kPages = 300;
constexpr std::size_t kPage = 4096;

void touch_new_pages() {
  void* memory = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  (void)madvise(memory, kPages * kPage, MADV_NOHUGEPAGE);
  for (std::size_t page = 0; page < kPages; ++page) static_cast<volatile char*>(memory)[page * kPage] = 1;
  munmap(memory, kPages * kPage);
}

TEST(EventCounters, CountsOrNamesEachEvent) {
  const EventCounters counters;
  for (const char* name : {"cycles", "instructions", "cache_misses", "cpu_ns", "page_faults", "context_switches"}) {
    const bool is_counted = std::ranges::count(counters.names(), name) == 1;
    EXPECT_NE(is_counted, counters.refusal().find(name) != std::string::npos) << name;
  }
  EXPECT_EQ(counters.refusal().find('\n'), std::string::npos) << "one line";
  EXPECT_EQ(counters.read().size(), counters.names().size());
}

TEST(EventCounters, CountsWhatHappens) {
  const EventCounters counters;
  const auto faults = std::ranges::find(counters.names(), "page_faults");
  if (faults == counters.names().end()) {
    EXPECT_THAT(counters.refusal(), testing::ContainsRegex("page_faults[a-z_, ]* \\(perf_event_open: [A-Z]"));
    return;
  }
  const auto index = static_cast<std::size_t>(faults - counters.names().begin());
  const EventReading before = counters.read();
  touch_new_pages();
  EXPECT_GE(events_between(before, counters.read())[index], static_cast<double>(kPages));
}

// An event that is counted in a part of the time: 100 in 10 of 100 ns, then 1 more in 10 of 20 ns.
TEST(EventCounters, ScalesWhatHappenedInBetween) {
  const EventReading before{{{100, 100, 10}, {5, 50, 50}}, {{7, 10, 10}}};
  const EventReading after{{{101, 120, 20}, {9, 60, 60}}, {{7, 20, 10}}};
  EXPECT_EQ(events_between(before, after), (std::vector<double>{1 * 2 + 4, 0}));
}

}  // namespace
}  // namespace hone::test
