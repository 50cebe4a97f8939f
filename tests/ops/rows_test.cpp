#include "ops/rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace hone::test {
namespace {

// Sums with conditional terms: g++ 12.2 miscompiled them with -fno-trapping-math.
TEST(Rows, LaneSumOfConditionalTerms) {
  for (const std::int64_t n : {1, 5, 16, 20, 33, 47, 48, 100, 1000}) {
    std::vector<float> values(static_cast<std::size_t>(n));
    std::vector<float> weights(values.size());
    double expected = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i + 1);
      weights[i] = i % 7 == 3 ? 0.0f : 0.5f;
      expected += static_cast<double>(values[i]) * static_cast<double>(weights[i]);
    }
    const double sum = lane_sum<double>(n, [&](std::int64_t i) {
      return weights[i] == 0.0f ? 0.0 : static_cast<double>(values[i]) * static_cast<double>(weights[i]);
    });
    EXPECT_EQ(sum, expected) << n;
  }
}

}  // namespace
}  // namespace hone::test
