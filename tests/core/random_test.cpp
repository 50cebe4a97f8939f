// Tests of random numbers: several normal numbers at a time.
#include "core/random.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(RandomStream, NormalsAreThoseOfOneAtATime) {
  const RandomStream random(3, "weights", 5);
  for (const std::uint64_t first :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{6}, (std::uint64_t{1} << 40) - 3}) {
    for (const std::size_t count : {0u, 1u, 2u, 7u}) {
      std::vector<float> values(count);
      random.normals(first, values);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(values[i], random.normal(first + i)) << first << " + " << i;
    }
  }
}

TEST(RandomStream, NormalNumbersHaveTheirMoments) {
  std::vector<float> values(100'000);
  RandomStream(1, "weights").normals(0, values);
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 0.02);  // six standard errors
  EXPECT_NEAR(squares / count, 1.0, 0.03);
}

}  // namespace
}  // namespace hone
