// Heads of FP8 pages, compared with their definition.
#include "core/float8_head.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/float8.h"
#include "core/random.h"

namespace hone::test {
namespace {

float scale_of_head(std::uint8_t byte) { return std::ldexp(1.0F, byte - 127); }

// Numbers of about the size of 2^exponent, which have no place that e4m3 or bf16 would prefer.
template <class T>
std::vector<T> head_of(int exponent, std::int64_t count) {
  const RandomStream random(7, "heads");
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    values.push_back(static_cast<T>(static_cast<float>(std::ldexp(random.uniform(at) - 0.5, exponent))));
  }
  return values;
}

// The scale is the least power of two with which no number is above 448, a byte is the nearest number of e4m3, and what
// is read is their product.
template <class T>
void expect_definition(int exponent, std::int64_t count) {
  const std::vector<T> values = head_of<T>(exponent, count);
  std::vector<std::uint8_t> bytes(values.size());
  const std::uint8_t byte = quantize_head(values.data(), count, bytes.data());
  float largest = 0;
  for (const T value : values) largest = std::max(largest, std::fabs(static_cast<float>(value)));
  const float scale = scale_of_head(byte);
  EXPECT_LE(largest, kE4m3Max * scale);
  if (scale > kLeastScale) {
    EXPECT_GT(largest, kE4m3Max * scale / 2);
  }
  std::vector<T> read(values.size());
  dequantize_head(bytes.data(), byte, count, read.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float scaled = static_cast<float>(values[i]) / scale;
    ASSERT_EQ(bytes[i], e4m3_of(scaled)) << i;
    ASSERT_EQ(static_cast<float>(read[i]), e4m3_value(bytes[i]) * scale) << i;
  }
}

TEST(Float8Head, IsRoundedWithItsScale) {
  for (const int exponent : {-120, -60, -9, -1, 0, 1, 5, 30, 126}) {
    for (const std::int64_t count : {8, 64, 72, 128, 256}) {
      expect_definition<float>(exponent, count);
      expect_definition<BFloat16>(exponent, count);
    }
  }
}

// The bounds of a scale, on both sides.
TEST(Float8Head, KeepsTheLargestNumberAtABound) {
  const auto scale = [](float largest) {
    const std::vector<float> values{0.0F, -largest};
    std::uint8_t bytes[2];
    return scale_of_head(quantize_head(values.data(), 2, bytes));
  };
  EXPECT_EQ(scale(448.0F), 1.0F);
  EXPECT_EQ(scale(std::nextafter(448.0F, 1e9F)), 2.0F);
  EXPECT_EQ(scale(std::nextafter(448.0F, 0.0F)), 1.0F);
  EXPECT_EQ(scale(0.0F), 1.0F);
  EXPECT_EQ(scale(std::numeric_limits<float>::min()), kLeastScale);
}

// The largest numbers of f32 are above those of bf16, and are no reason to lose their head.
TEST(Float8Head, StaysFiniteNextToTheLargestNumbers) {
  const std::vector<float> values{0x1p120F, std::numeric_limits<float>::max()};
  std::uint8_t bytes[2];
  std::vector<float> read(2);
  const std::uint8_t byte = quantize_head(values.data(), 2, bytes);
  EXPECT_NE(byte, 255);
  dequantize_head(bytes, byte, 2, read.data());
  EXPECT_EQ(read[0], 0x1p120F);
  EXPECT_GE(read[1], 0x1.Ep127F);
}

TEST(Float8Head, ThatIsNotFiniteIsNaN) {
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> values{1.0F, wrong, -2.0F};
    std::vector<std::uint8_t> bytes(3);
    std::vector<float> read(3);
    const std::uint8_t byte = quantize_head(values.data(), 3, bytes.data());
    EXPECT_EQ(byte, 255);
    dequantize_head(bytes.data(), byte, 3, read.data());
    for (const float value : read) EXPECT_TRUE(std::isnan(value));
  }
}

}  // namespace
}  // namespace hone::test
