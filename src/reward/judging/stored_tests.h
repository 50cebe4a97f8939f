// Reads and caches tests that are stored in another dataset than the rows that are judged.
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

// Default size of the cache of tests in memory.
inline constexpr std::size_t kMostStoredBytes = std::size_t{1} << 30;

// Returns the memory that the tests take, in bytes.
[[nodiscard]] std::size_t bytes_of(const std::vector<StoredTest>& tests);

// Reads the tests that match a query. `query.columns` must name three columns: name, input and output of a test. Throws
// Error if `rows` is empty, and the errors of `rows`.
[[nodiscard]] std::vector<StoredTest> read_stored_tests(const RowSource& rows, const RowQuery& query);

// Cache of the most recently used tests. Not thread-safe.
class TestShelf {
 public:
  explicit TestShelf(std::size_t most_bytes = kMostStoredBytes) : most_bytes_(most_bytes) {}

  // Returns the tests with this key, calling `read` if they are not in the cache. Then evicts the least recently used
  // tests until at most `most_bytes` remain; the returned tests always remain.
  [[nodiscard]] StoredTests take(const std::string& key, const std::function<std::vector<StoredTest>()>& read);

 private:
  struct Place {
    std::string key;
    StoredTests tests;
    std::size_t bytes = 0;
  };

  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::list<Place> places_;  // the most recently used first
  std::unordered_map<std::string, std::list<Place>::iterator> by_key_;
};

}  // namespace hone
