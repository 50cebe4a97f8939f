#include "ops/rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/random.h"

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

template <class T>
void expect_equal_sums() {
  using A = Accumulator<T>;
  const RandomStream random(3, "rows");
  for (const std::int64_t n : {0, 1, 5, 8, 15, 16, 20, 33, 48, 100, 1000}) {
    std::vector<T> x;
    for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<T>(random.normal(static_cast<std::uint64_t>(i))));
    const T* p = x.data();
    const A wanted = lane_sum<A>(n, [&](std::int64_t i) { return widen(p[i]) * widen(p[i]) - widen(p[i]); });
    const A sum = vector_lane_sum<A>(n, [&](const auto& at) { return at(p) * at(p) - at(p); });
    EXPECT_EQ(sum, wanted) << n;
    std::vector<T> scaled(x.size());
    for_lanes<A>(n, [&](const auto& at) { at.store(scaled.data(), at(p) * A(0.3)); });
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(widen(scaled[i]), widen(static_cast<T>(widen(x[i]) * A(0.3))));
  }
}

TEST(Rows, SumsInVectorsHaveTheBitsOfLaneSum) {
  expect_equal_sums<float>();
  expect_equal_sums<double>();
  expect_equal_sums<BFloat16>();
}

}  // namespace
}  // namespace hone::test
