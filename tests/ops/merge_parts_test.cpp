#include "ops/linear_logprobs/merge_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace hone::test {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

double log_sum_exp(const std::vector<double>& logits) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  return std::log(sum);
}

double entropy_of(const std::vector<double>& logits) {
  const double lse = log_sum_exp(logits);
  double entropy = 0;
  for (const double logit : logits) {
    if (logit != kNone) entropy += std::exp(logit - lse) * (lse - logit);
  }
  return entropy;
}

// Statistics of each rank's part of a row's logits, [ranks, kPartStatistics, 1].
std::vector<double> statistics(const std::vector<double>& logits, std::size_t ranks, std::size_t target) {
  const std::size_t size = logits.size() / ranks;
  std::vector<double> all;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(r * size);
    const std::vector<double> part(begin, begin + static_cast<std::ptrdiff_t>(size));
    const bool is_owner = target / size == r;
    const double own = is_owner ? logits[target] : std::nan("");
    const double max = *std::ranges::max_element(part);
    const bool hit = is_owner && static_cast<std::size_t>(std::ranges::find(part, max) - part.begin()) == target % size;
    all.insert(all.end(), {own - log_sum_exp(part), entropy_of(part), hit ? 1.0 : 0.0, log_sum_exp(part), max});
  }
  return all;
}

void expect_whole(const std::vector<double>& logits) {
  const double lse = log_sum_exp(logits);
  const auto best = static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
  for (const std::size_t ranks : {1U, 2U, 4U}) {
    for (std::size_t target = 0; target < logits.size(); ++target) {
      const std::vector<double> all = statistics(logits, ranks, target);
      const auto owner = static_cast<std::int64_t>(target / (logits.size() / ranks));
      const auto merged = merge_parts(all.data(), static_cast<std::int64_t>(ranks), 1, 0, owner);
      EXPECT_NEAR(merged.lse, lse, 1e-12);
      EXPECT_NEAR(merged.entropy, entropy_of(logits), 1e-12);
      EXPECT_EQ(merged.hit, target == best ? 1.0 : 0.0) << target << " in " << ranks << " parts";
      if (logits[target] == kNone) continue;
      EXPECT_NEAR(merged.logp, logits[target] - lse, 1e-12);
    }
  }
}

TEST(MergeParts, GiveTheSoftmaxOfTheWhole) {
  expect_whole({0.5, -1, 2, 0, 1, 1.5, -3, 0.25});
  expect_whole({1, 3, 0, 3, 3, -1, 3, 2});  // of equal logits the lowest token is the most probable
  expect_whole({700, 690, -700, 0, 1, 2, 3, 4});
}

TEST(MergeParts, APartMayHaveTokensOfNoProbability) { expect_whole({1, kNone, 0, 2, kNone, -1, 0.5, kNone}); }

TEST(MergeParts, ANanOfAnyPartStays) {
  for (const std::size_t rank : {0U, 1U, 3U}) {
    std::vector<double> all = statistics({0.5, -1, 2, 0, 1, 1.5, -3, 0.25}, 4, 2);
    all[rank * kPartStatistics + PartStatistic::lse] = std::nan("");
    all[rank * kPartStatistics + PartStatistic::max] = std::nan("");
    const auto merged = merge_parts(all.data(), 4, 1, 0, 1);
    EXPECT_TRUE(std::isnan(merged.lse) && std::isnan(merged.logp)) << rank;
    EXPECT_EQ(merged.hit, 0) << rank;
  }
}

}  // namespace
}  // namespace hone::test
