#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "data/split.h"

namespace hone {
namespace {

// A set whose token values are their places in the stream.
ExampleSet set_of_lengths(const std::vector<std::int64_t>& lengths) {
  ExampleSetBuilder builder;
  TokenId value = 0;
  for (const std::int64_t length : lengths) {
    TokenizedExample example;
    for (std::int64_t t = 0; t < length; ++t) example.tokens.push_back(value++);
    builder.add(example);
  }
  return std::move(builder).finish();
}

std::vector<std::int64_t> random_lengths(std::uint64_t seed, std::int64_t count, std::int64_t most) {
  const RandomStream random(seed, "lengths");
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    lengths.push_back(
        1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(most))));
  }
  return lengths;
}

// Lengths like those of gsm8k's questions with answers under a chat template: normal around 200.
std::vector<std::int64_t> gsm8k_like_lengths(std::int64_t count) {
  const RandomStream random(7, "gsm8k");
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    lengths.push_back(std::clamp<std::int64_t>(
        static_cast<std::int64_t>(200 + 70 * random.normal(static_cast<std::uint64_t>(i))), 50, 1024));
  }
  return lengths;
}

double fullness(const PackedRows& rows, std::int64_t capacity) {
  return static_cast<double>(rows.token_count()) / static_cast<double>(rows.size() * capacity);
}

// Every token of every example is in exactly one segment; no row is over capacity or empty.
void expect_complete(const ExampleSet& set, const PackedRows& rows, std::int64_t capacity) {
  std::vector<int> seen(static_cast<std::size_t>(set.token_count()), 0);
  for (std::int64_t row = 0; row < rows.size(); ++row) {
    EXPECT_GT(rows.token_count(row), 0);
    EXPECT_LE(rows.token_count(row), capacity);
    for (const Segment& segment : rows[row]) {
      EXPECT_LE(segment.begin + segment.length, set.length(segment.example));
      for (std::int32_t t = 0; t < segment.length; ++t) {
        ++seen[static_cast<std::size_t>(set[segment.example].tokens[static_cast<std::size_t>(segment.begin + t)])];
      }
    }
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
}

TEST(Packing, EveryTokenOnceAndNoRowOverCapacity) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::int64_t capacity = 1 + static_cast<std::int64_t>(RandomStream(seed, "capacity").below(0, 200));
    const auto count = static_cast<std::int64_t>(RandomStream(seed, "count").below(0, 300));
    for (const Packing packing : {Packing::bfd, Packing::bfd_split, Packing::wrapped}) {
      const std::int64_t longest = cuts_long_examples(packing) ? capacity : 3 * capacity;
      const ExampleSet set = set_of_lengths(random_lengths(seed, count, longest));
      expect_complete(set, pack(set, all_examples(set.size()), packing, capacity), capacity);
    }
  }
}

TEST(Packing, BfdKeepsExamplesWhole) {
  const ExampleSet set = set_of_lengths(random_lengths(3, 500, 100));
  const PackedRows rows = pack(set, all_examples(set.size()), Packing::bfd, 100);
  for (std::int64_t row = 0; row < rows.size(); ++row) {
    for (const Segment& segment : rows[row]) EXPECT_EQ(segment.length, set.length(segment.example));
  }
}

// The defining rule, checked against a search over all rows.
TEST(Packing, BfdChoosesTheTightestRow) {
  const ExampleSet set = set_of_lengths(random_lengths(11, 400, 60));
  constexpr std::int64_t kCapacity = 64;
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < set.size(); ++i) lengths.push_back(set.length(i));
  std::sort(lengths.rbegin(), lengths.rend());
  std::vector<std::int64_t> space;
  for (const std::int64_t length : lengths) {
    std::int64_t best = -1;
    for (std::size_t row = 0; row < space.size(); ++row) {
      if (space[row] >= length && (best < 0 || space[row] < space[static_cast<std::size_t>(best)])) {
        best = static_cast<std::int64_t>(row);
      }
    }
    if (best < 0) {
      best = static_cast<std::int64_t>(space.size());
      space.push_back(kCapacity);
    }
    space[static_cast<std::size_t>(best)] -= length;
  }
  const PackedRows rows = pack(set, all_examples(set.size()), Packing::bfd, kCapacity);
  std::vector<std::int64_t> left;
  for (std::int64_t row = 0; row < rows.size(); ++row) left.push_back(kCapacity - rows.token_count(row));
  std::sort(left.begin(), left.end());
  std::sort(space.begin(), space.end());
  EXPECT_EQ(left, space);
}

TEST(Packing, SmallCaseByHand) {
  const ExampleSet set = set_of_lengths({4, 6, 3, 7, 2});
  const PackedRows rows = pack(set, all_examples(5), Packing::bfd, 10);
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0][0], (Segment{3, 0, 7}));
  EXPECT_EQ(rows[0][1], (Segment{2, 0, 3}));
  EXPECT_EQ(rows[1][0], (Segment{1, 0, 6}));
  EXPECT_EQ(rows[1][1], (Segment{0, 0, 4}));
  EXPECT_EQ(rows[2][0], (Segment{4, 0, 2}));
}

TEST(Packing, WrappedCutsTheStream) {
  const ExampleSet set = set_of_lengths({3, 6, 1});
  const PackedRows rows = pack(set, all_examples(3), Packing::wrapped, 4);
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0][1], (Segment{1, 0, 1}));
  EXPECT_EQ(rows[1][0], (Segment{1, 1, 4}));
  EXPECT_EQ(rows[2][0], (Segment{1, 5, 1}));
  EXPECT_EQ(rows[2][1], (Segment{2, 0, 1}));
}

TEST(Packing, FullOnGsm8kLikeLengths) {
  const ExampleSet set = set_of_lengths(gsm8k_like_lengths(7473));
  const PackedRows rows = pack(set, all_examples(set.size()), Packing::bfd, 1024);
  EXPECT_GT(fullness(rows, 1024), 0.99);
}

TEST(Packing, ManyExamplesOfFewLengthsStayFast) {
  std::vector<Segment> segments;
  for (std::uint32_t i = 0; i < 300'000; ++i) segments.push_back({i, 0, static_cast<std::int32_t>(1 + i % 7)});
  const PackedRows rows = pack_bfd(segments, 1'000'000);
  EXPECT_EQ(rows.token_count(), 299'999 / 7 * 28 + 1);
  EXPECT_EQ(rows.size(), 2);
}

TEST(Packing, OnlyTheNamedExamples) {
  const ExampleSet set = set_of_lengths({3, 4, 5});
  const std::vector<std::uint32_t> some = {2, 0};
  const PackedRows rows = pack(set, some, Packing::none, 0);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0][0], (Segment{2, 0, 5}));
  EXPECT_EQ(rows[1][0], (Segment{0, 0, 3}));
}

TEST(Packing, NamesAndBadValues) {
  EXPECT_EQ(packing_from_name("bfd_split"), Packing::bfd_split);
  EXPECT_THROW((void)packing_from_name("ffd"), Error);
  EXPECT_THROW((void)pack_bfd({}, 0), Error);
  const ExampleSet set = set_of_lengths({5});
  EXPECT_THROW((void)pack(set, all_examples(1), Packing::bfd, 4), Defect);
}

}  // namespace
}  // namespace hone
