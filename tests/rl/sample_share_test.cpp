#include "rl/sample_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/random.h"

namespace hone {
namespace {

using Indices = std::vector<std::size_t>;

TEST(SampleShare, GivesTheLongestToTheRankWithTheFewestTokens) {
  // Micro-batches of 12, 9, 2 and 10 tokens: rank 0 gets 12 of the first two, and then has more than rank 1.
  const Indices lengths{3, 9, 5, 4, 1, 1, 8, 2};
  EXPECT_EQ(share_of_samples(lengths, 2, 2, 0), (Indices{0, 1, 4, 5}));
  EXPECT_EQ(share_of_samples(lengths, 2, 2, 1), (Indices{2, 3, 6, 7}));
  const Indices others{5, 4, 3, 9, 1, 1, 8, 2};
  EXPECT_EQ(share_of_samples(others, 2, 2, 0), (Indices{2, 3, 4, 5}));
  EXPECT_EQ(share_of_samples(others, 2, 2, 1), (Indices{0, 1, 6, 7}));
}

TEST(SampleShare, OfOneRankIsEverything) {
  const Indices lengths{3, 9, 5, 4};
  EXPECT_EQ(share_of_samples(lengths, 2, 1, 0), (Indices{0, 1, 2, 3}));
}

TEST(SampleShare, HasEachSampleOnceAndAboutEqualTokens) {
  constexpr std::size_t kBatches = 16;
  constexpr std::size_t kSize = 4;
  const RandomStream random(3, "lengths");
  for (const std::size_t ranks : {2, 3, 8}) {
    Indices lengths(kBatches * kSize * ranks);
    for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = 1 + random.below(i, 4096);
    Indices all;
    std::vector<double> tokens;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Indices own = share_of_samples(lengths, kSize, ranks, rank);
      ASSERT_EQ(own.size(), kBatches * kSize);
      EXPECT_TRUE(std::ranges::is_sorted(own));
      for (std::size_t i = 0; i < own.size(); ++i) EXPECT_EQ(own[i] / (kSize * ranks), i / kSize);
      tokens.push_back(0);
      for (const std::size_t sample : own) tokens.back() += static_cast<double>(lengths[sample]);
      all.insert(all.end(), own.begin(), own.end());
    }
    std::ranges::sort(all);
    Indices once(lengths.size());
    std::iota(once.begin(), once.end(), std::size_t{0});
    EXPECT_EQ(all, once);
    EXPECT_LT(std::ranges::max(tokens) / std::ranges::min(tokens), 1.05) << ranks;
  }
}

}  // namespace
}  // namespace hone
