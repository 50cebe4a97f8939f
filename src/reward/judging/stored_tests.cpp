#include "reward/judging/stored_tests.h"

#include <span>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace hone {

std::size_t bytes_of(const std::vector<StoredTest>& tests) {
  std::size_t bytes = 0;
  for (const StoredTest& test : tests) {
    bytes += sizeof(StoredTest) + test.name.size() + test.input.size() + test.output.size();
  }
  return bytes;
}

std::vector<StoredTest> read_stored_tests(const RowSource& rows, const RowQuery& query) {
  HONE_ASSERT(query.columns.size() == 3, query.dataset, ": ", query.columns.size(), " columns");
  if (!rows) throw Error(query.dataset, "this command cannot read rows of other datasets");
  std::vector<StoredTest> tests;
  rows(query, [&](std::span<const std::string_view> values) {
    tests.push_back({std::string(values[0]), std::string(values[1]), std::string(values[2])});
  });
  return tests;
}

StoredTests TestShelf::take(const std::string& key, const std::function<std::vector<StoredTest>()>& read) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    places_.splice(places_.begin(), places_, found->second);
    return places_.front().tests;
  }
  auto tests = std::make_shared<const std::vector<StoredTest>>(read());
  const std::size_t bytes = bytes_of(*tests);
  places_.push_front({key, tests, bytes});
  by_key_[key] = places_.begin();
  bytes_ += bytes;
  while (bytes_ > most_bytes_ && places_.size() > 1) {
    bytes_ -= places_.back().bytes;
    by_key_.erase(places_.back().key);
    places_.pop_back();
  }
  return tests;
}

}  // namespace hone
