#include "reward/judging/stored_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "core/error.h"
#include "reward/judging/contest.h"

namespace hone {
namespace {

std::vector<StoredTest> test_of_size(std::size_t size) {
  return {{.name = "a", .input = std::string(size, 'i'), .output = ""}};
}

TEST(TestShelf, what_was_not_asked_for_the_longest_goes) {
  TestShelf shelf(2500);
  std::string read;
  const auto take = [&](const std::string& key, std::size_t size = 1000) {
    return shelf.take(key, [&] {
      read += key;
      return test_of_size(size);
    });
  };
  const StoredTests first = take("a");
  EXPECT_EQ(take("a"), first);
  (void)take("b");
  (void)take("a");
  EXPECT_EQ(read, "ab");
  (void)take("c");  // evicts b
  EXPECT_EQ(take("a"), first);
  (void)take("b");
  EXPECT_EQ(read, "abcb");
  // Tests that are larger than the cache remain until the next ones are read.
  (void)take("d", 9000);
  (void)take("d", 9000);
  (void)take("a");
  EXPECT_EQ(read, "abcbda");
  EXPECT_EQ(first->front().input.size(), 1000u);
}

TEST(TestShelf, what_cannot_be_read_is_asked_for_again) {
  TestShelf shelf;
  EXPECT_THROW((void)shelf.take("a", []() -> std::vector<StoredTest> { throw Error("no file"); }), Error);
  EXPECT_EQ(shelf.take("a", [] { return test_of_size(3); })->size(), 1u);
}

TEST(StoredTests, without_a_source_of_rows_the_data_set_is_named) {
  try {
    (void)read_stored_tests({}, {.dataset = "Org/Tests", .columns = {"a", "b", "c"}});
    FAIL() << "read tests without a source of rows";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("Org/Tests"));
  }
}

// The tests of each problem take half of the memory, so three problems are judged in two parts. Completions of one
// problem share their tests.
TEST(Contest, completions_are_judged_in_parts_that_share_the_memory) {
  std::vector<StoredTests> problems;
  for (int i = 0; i < 3; ++i) {
    problems.push_back(std::make_shared<const std::vector<StoredTest>>(test_of_size(1000)));
  }
  std::vector<RewardInput> batch(7);
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i].group = static_cast<std::int64_t>(i / 2);
  std::size_t fetched = 0;
  std::atomic<std::size_t> fetched_in_first_part = 0;
  const ContestJudge judge{.reward = "some",
                           .batch_size = 1,
                           .stored_tests = [&](const RewardInput& input) -> StoredTests {
                             ++fetched;
                             const auto at = static_cast<std::size_t>(input.group);
                             return at < problems.size() ? problems[at] : nullptr;
                           },
                           .prepare =
                               [&](const RewardInput& input, const StoredTests& stored) {
                                 if (input.group == 0) fetched_in_first_part = fetched;
                                 ContestVerdict verdict;
                                 verdict.has_settled = true;
                                 verdict.settled = static_cast<double>(input.group) + (stored ? 0.5 : 0);
                                 return verdict;
                               },
                           .most_stored_bytes = 2000};
  const RewardScores scores = judge_contest(judge, batch);
  EXPECT_EQ(scores, (RewardScores{0.5, 0.5, 1.5, 1.5, 2.5, 2.5, 3.0}));
  EXPECT_EQ(fetched, batch.size());
  EXPECT_EQ(fetched_in_first_part, 3u);
}

}  // namespace
}  // namespace hone
