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
  if (faults == counters.names().end()) GTEST_SKIP() << counters.refusal();
  const auto index = faults - counters.names().begin();
  const double before = counters.read()[index];
  touch_new_pages();
  EXPECT_GE(counters.read()[index] - before, static_cast<double>(kPages));
}

}  // namespace
}  // namespace hone::test
