#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "data/split.h"

namespace hone {
namespace {

// A set whose token values are their positions in the stream.
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

// Lengths distributed like gsm8k's questions with answers under a chat template: median 183, from 76 to 551 tokens.
std::vector<std::int64_t> gsm8k_like_lengths(std::int64_t count) {
  const RandomStream random(7, "gsm8k");
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    const double length = 183 * std::exp(0.33 * random.normal(static_cast<std::uint64_t>(i)));
    lengths.push_back(std::clamp<std::int64_t>(static_cast<std::int64_t>(length), 76, 551));
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
    for (const Packing packing : {Packing::kBfd, Packing::kBfdSplit, Packing::kWrapped}) {
      const std::int64_t longest = cuts_long_examples(packing) ? capacity : 3 * capacity;
      const ExampleSet set = set_of_lengths(random_lengths(seed, count, longest));
      expect_complete(set, pack(set, all_examples(set.size()), packing, capacity), capacity);
    }
  }
}

TEST(Packing, BfdKeepsExamplesWhole) {
  const ExampleSet set = set_of_lengths(random_lengths(3, 500, 100));
  const PackedRows rows = pack(set, all_examples(set.size()), Packing::kBfd, 100);
  for (std::int64_t row = 0; row < rows.size(); ++row) {
    for (const Segment& segment : rows[row]) EXPECT_EQ(segment.length, set.length(segment.example));
  }
}

// Number of rows of best fit decreasing, by a naive search over all rows.
std::int64_t plain_bfd_rows(std::vector<std::int64_t> lengths, std::int64_t capacity) {
  std::sort(lengths.rbegin(), lengths.rend());
  std::vector<std::int64_t> space;
  for (const std::int64_t length : lengths) {
    auto best = space.end();
    for (auto row = space.begin(); row != space.end(); ++row) {
      if (*row >= length && (best == space.end() || *row < *best)) best = row;
    }
    if (best == space.end()) best = space.insert(space.end(), capacity);
    *best -= length;
  }
  return static_cast<std::int64_t>(space.size());
}

TEST(Packing, BfdNeedsFewerRowsThanTheTextbook) {
  std::int64_t ours = 0;
  std::int64_t textbook = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto most = 10 + static_cast<std::int64_t>(RandomStream(seed, "most").below(0, 91));
    const std::vector<std::int64_t> lengths = random_lengths(seed, 300, most);
    const ExampleSet set = set_of_lengths(lengths);
    const std::int64_t rows = pack(set, all_examples(set.size()), Packing::kBfd, 100).size();
    EXPECT_LE(rows, plain_bfd_rows(lengths, 100) + 1) << seed;
    ours += rows;
    textbook += plain_bfd_rows(lengths, 100);
  }
  EXPECT_LT(ours, textbook);
}

TEST(Packing, BfdPrefersAnExactPair) {
  const ExampleSet set = set_of_lengths({60, 39, 25, 15, 20, 20});
  const PackedRows rows = pack(set, all_examples(6), Packing::kBfd, 100);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows.token_count(0), 100);
  EXPECT_EQ(rows[0][1], (Segment{2, 0, 25}));
  EXPECT_EQ(rows[0][2], (Segment{3, 0, 15}));
}

TEST(Packing, SmallCaseByHand) {
  const ExampleSet set = set_of_lengths({4, 6, 3, 7, 2});
  const PackedRows rows = pack(set, all_examples(5), Packing::kBfd, 10);
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0][0], (Segment{3, 0, 7}));
  EXPECT_EQ(rows[0][1], (Segment{2, 0, 3}));
  EXPECT_EQ(rows[1][0], (Segment{1, 0, 6}));
  EXPECT_EQ(rows[1][1], (Segment{0, 0, 4}));
  EXPECT_EQ(rows[2][0], (Segment{4, 0, 2}));
}

TEST(Packing, WrappedCutsTheStream) {
  const ExampleSet set = set_of_lengths({3, 6, 1});
  const PackedRows rows = pack(set, all_examples(3), Packing::kWrapped, 4);
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0][1], (Segment{1, 0, 1}));
  EXPECT_EQ(rows[1][0], (Segment{1, 1, 4}));
  EXPECT_EQ(rows[2][0], (Segment{1, 5, 1}));
  EXPECT_EQ(rows[2][1], (Segment{2, 0, 1}));
}

TEST(Packing, FullOnGsm8kLikeLengths) {
  const ExampleSet set = set_of_lengths(gsm8k_like_lengths(7473));
  EXPECT_GT(fullness(pack(set, all_examples(set.size()), Packing::kBfd, 1024), 1024), 0.99);
  EXPECT_GT(fullness(pack(set, all_examples(set.size()), Packing::kBfd, 4096), 4096), 0.99);
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
  const PackedRows rows = pack(set, some, Packing::kNone, 0);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0][0], (Segment{2, 0, 5}));
  EXPECT_EQ(rows[1][0], (Segment{0, 0, 3}));
}

TEST(Packing, NamesAndBadValues) {
  EXPECT_EQ(packing_from_name("bfd_split"), Packing::kBfdSplit);
  EXPECT_THROW((void)packing_from_name("ffd"), Error);
  EXPECT_THROW((void)pack_bfd({}, 0), Error);
  const ExampleSet set = set_of_lengths({5});
  EXPECT_THROW((void)pack(set, all_examples(1), Packing::kBfd, 4), Defect);
}

}  // namespace
}  // namespace hone
