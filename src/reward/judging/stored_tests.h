// Tests of problems that are kept apart from the rows that are judged.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "reward/reward.h"

namespace hone {

struct StoredTest {
  std::string name;
  std::string input;
  std::string output;
};
using StoredTests = std::shared_ptr<const std::vector<StoredTest>>;

// What may lie in memory before some of it must go.
inline constexpr std::size_t kMostStoredBytes = std::size_t{1} << 30;

[[nodiscard]] std::size_t bytes_of(const std::vector<StoredTest>& tests);

// `query.columns` are three: what is a test's name, input and output. Throws Error as `rows` does, and where there is
// no such source of rows.
[[nodiscard]] std::vector<StoredTest> read_stored_tests(const RowSource& rows, const RowQuery& query);

// The tests that were last asked for. Not to be used from two threads at a time.
class TestShelf {
 public:
  explicit TestShelf(std::size_t most_bytes = kMostStoredBytes) : most_bytes_(most_bytes) {}

  // Those called `key`, which `read` reads where they are not here. What was not asked for the longest goes, until the
  // rest are at most `most_bytes`; the last ones stay.
  [[nodiscard]] StoredTests take(const std::string& key, const std::function<std::vector<StoredTest>()>& read);

 private:
  struct Place {
    std::string key;
    StoredTests tests;
    std::size_t bytes = 0;
  };

  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::list<Place> places_;  // the last asked for first
  std::unordered_map<std::string, std::list<Place>::iterator> by_key_;
};

}  // namespace hone
