#include "data/micro_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "data/loader.h"

namespace hone {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<BatchLimits> random_sizes(const RandomStream& random, std::size_t count, BatchLimits most) {
  std::vector<BatchLimits> sizes;
  for (std::size_t i = 0; i < count; ++i) {
    sizes.push_back(
        {1 + static_cast<std::int64_t>(random.below(2 * i, static_cast<std::uint64_t>(most.tokens))),
         1 + static_cast<std::int64_t>(random.below(2 * i + 1, static_cast<std::uint64_t>(most.documents)))});
  }
  return sizes;
}

BatchLimits sum_of(std::span<const BatchLimits> sizes) {
  BatchLimits sum;
  for (const BatchLimits& size : sizes) sum = {sum.tokens + size.tokens, sum.documents + size.documents};
  return sum;
}

bool within(BatchLimits size, BatchLimits limits) {
  return size.tokens <= limits.tokens && size.documents <= limits.documents;
}

// Returns the fewest consecutive parts within the limits.
std::size_t fewest_parts(std::span<const BatchLimits> sizes, BatchLimits limits) {
  std::vector<std::size_t> fewest(sizes.size() + 1, std::numeric_limits<std::size_t>::max());
  fewest[0] = 0;
  for (std::size_t end = 1; end <= sizes.size(); ++end) {
    for (std::size_t begin = 0; begin < end; ++begin) {
      if (!within(sum_of(sizes.subspan(begin, end - begin)), limits)) continue;
      fewest[end] = std::min(fewest[end], fewest[begin] + 1);
    }
  }
  return fewest.back();
}

TEST(MicroBatches, HoldEachSequenceOnceInOrderWithinTheLimits) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const RandomStream random(seed, "cut");
    const BatchLimits longest{.tokens = 20, .documents = 4};
    const BatchLimits limits{.tokens = 20 + static_cast<std::int64_t>(random.below(1000, 60)),
                             .documents = 4 + static_cast<std::int64_t>(random.below(1001, 12))};
    const std::vector<BatchLimits> sizes = random_sizes(random, random.below(1002, 40), longest);
    const std::vector<std::size_t> ends = cut_micro_batches(sizes, limits);
    EXPECT_EQ(cut_micro_batches(sizes, limits), ends);
    EXPECT_EQ(ends.size(), fewest_parts(sizes, limits));
    EXPECT_EQ(ends.empty() ? 0 : ends.back(), sizes.size());
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      ASSERT_LT(begin, end);
      const std::span<const BatchLimits> all(sizes);
      EXPECT_TRUE(within(sum_of(all.subspan(begin, end - begin)), limits));
      if (end < sizes.size()) {
        EXPECT_FALSE(within(sum_of(all.subspan(begin, end - begin + 1)), limits)) << "the next sequence fits";
      }
      begin = end;
    }
  }
}

TEST(MicroBatches, RefuseWhatNeverFits) {
  const std::vector<BatchLimits> sizes{{5, 1}, {9, 1}};
  EXPECT_THROW((void)cut_micro_batches(sizes, {8, 4}), Defect);
  EXPECT_THAT(cut_micro_batches(sizes, {9, 4}), ElementsAre(1, 2));
  EXPECT_THAT(cut_micro_batches(sizes, {14, 4}), ElementsAre(2));
}

std::int64_t rows_with(std::span<const std::int64_t> counts, std::span<const std::int64_t> capacities) {
  std::int64_t rows = 0;
  for (const std::int64_t count : counts) rows += *std::ranges::lower_bound(capacities, count);
  return rows;
}

// Every choice of as many capacities among the multiples of 128 is tried.
TEST(Capacities, NoOthersMultiplyFewerRows) {
  constexpr std::int64_t kMost = 10 * 128 - 50;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const RandomStream random(seed, "capacities");
    std::vector<std::int64_t> counts{kMost};
    for (std::uint64_t i = 0; i < 30; ++i) {
      const std::uint64_t around = random.below(1000, 1000);
      counts.push_back(1 +
                       static_cast<std::int64_t>(std::min<std::uint64_t>(around + random.below(i, 300), kMost - 1)));
    }
    const std::vector<std::int64_t> chosen = fitting_capacities(counts, kMost);
    EXPECT_EQ(chosen.back(), kMost);
    EXPECT_LE(chosen.size(), kMostCapacities);
    EXPECT_TRUE(std::ranges::is_sorted(chosen, std::ranges::less_equal()) || chosen.size() == 1);
    for (unsigned set = 0; set < 1u << 9; ++set) {
      std::vector<std::int64_t> others;
      for (int i = 0; i < 9; ++i) {
        if ((set >> i & 1u) != 0) others.push_back((i + 1) * 128);
      }
      others.push_back(kMost);
      if (others.size() != chosen.size()) continue;
      EXPECT_GE(rows_with(counts, others), rows_with(counts, chosen));
    }
  }
}

TEST(Capacities, FullMicroBatchesNeedOne) {
  const std::vector<std::int64_t> full(100, 8192);
  EXPECT_THAT(fitting_capacities(full, 8192), ElementsAre(8192));
  EXPECT_THAT(fitting_capacities(std::vector<std::int64_t>{}, 8192), ElementsAre(8192));
  EXPECT_THAT(fitting_capacities(std::vector<std::int64_t>{3, 90, 100}, 100), ElementsAre(100));
  std::vector<std::int64_t> with_a_rest(300, 8192);
  with_a_rest.push_back(128);
  EXPECT_THAT(fitting_capacities(with_a_rest, 8192), ElementsAre(8192)) << "it would save one part of 300";
  const std::vector<std::int64_t> narrow{2000, 2500, 3000};
  EXPECT_THAT(fitting_capacities(narrow, 8000), ElementsAre(2048, 2560, 3072, 8000));
}

TEST(Capacities, PartsAreMultiplesOfATile) {
  EXPECT_THAT(even_capacities(32'000),
              ElementsAre(2048, 4096, 6016, 8064, 10112, 12032, 14080, 16000, 18048, 20096, 22016, 24064, 25088, 26112,
                          27008, 28032, 29056, 30080, 31104, 32000));
  EXPECT_THAT(even_capacities(300), ElementsAre(128, 256, 300));
  EXPECT_THAT(even_capacities(1), ElementsAre(1));
}

StepSizes some_steps() {
  return {.batch = {100, 4},
          .longest = {40, 2},
          .batches_per_step = 3,
          .steps = {{{40, 1}, {10, 2}, {5, 1}, {5, 1}, {5, 1}, {5, 1}, {30, 1}}, {{40, 2}, {40, 1}}}};
}

TEST(MicroBatchShape, IsThatOfTheLongestBatchUnlessTheKeySaysOtherwise) {
  const MicroBatchShape unset = micro_batch_shape(some_steps(), std::nullopt, "training");
  EXPECT_EQ(unset.limits, (BatchLimits{100, 8})) << "all sequences of the first step fit into one micro-batch";
  EXPECT_EQ(micro_batch_shape(some_steps(), 40, "training").limits, (BatchLimits{40, 6}));
  EXPECT_EQ(micro_batch_shape(some_steps(), 1000, "training").limits.tokens, 300) << "a step has no more";
  EXPECT_EQ(tokens_of_step(std::int64_t{1} << 40, std::int64_t{1} << 40), std::numeric_limits<std::int64_t>::max());
  try {
    (void)micro_batch_shape(some_steps(), 39, "training");
    FAIL() << "it was not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("max_tokens_per_micro_batch: is 39, but the longest sequence of the training "
                                        "data has 40 tokens, and a sequence is never split"));
  }
}

// The steps of a loader in micro-batches, from every position and in every cutting.
TEST(MicroBatches, OfALoaderAreAFunctionOfItsPosition) {
  ExampleSetBuilder builder;
  for (std::int64_t i = 0; i < 23; ++i) {
    TokenizedExample example;
    for (std::int64_t t = 0; t < 1 + i * 7 % 9; ++t) example.tokens.push_back(static_cast<TokenId>(i * 100 + t));
    builder.add(example);
  }
  const ExampleSet set = std::move(builder).finish();
  const auto loader_of = [&] {
    return make_row_loader(set, pack(set, all_examples(set.size()), Packing::kNone, 0), {.rows_per_batch = 4});
  };
  const auto whole = loader_of();
  const StepSizes sizes = step_sizes(*whole, 2);
  ASSERT_EQ(sizes.steps.size(), 3u);
  EXPECT_EQ(sizes.longest.tokens, 9);
  for (const std::int64_t most : {9, 15, 30, 200}) {
    const BatchLimits limits = micro_batch_shape(sizes, most, "training").limits;
    for (std::int64_t index = 0; index < whole->batches_per_epoch(); ++index) {
      whole->seek({1, index});
      const auto resumed = loader_of();
      resumed->restore(whole->state());
      const std::vector<HostBatch> parts = lay_micro_batches(whole->next_sequences(), limits);
      EXPECT_EQ(lay_micro_batches(resumed->next_sequences(), limits), parts);
      HostBatch joined;
      for (const HostBatch& part : parts) {
        EXPECT_LE(part.token_count(), limits.tokens);
        append_batch(joined, part);
      }
      EXPECT_EQ(joined, whole->batch_at({1, index}));
      for (std::int64_t d = 0; d < joined.document_count(); ++d) {
        const auto at = static_cast<std::size_t>(d);
        EXPECT_EQ(documents_of(joined, at, at + 1), whole->sequences_at({1, index})[at]);
      }
    }
  }
}

}  // namespace
}  // namespace hone
