// Numbers of e4m3 and their scales, compared with their definition.
#include "core/float8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/random.h"

namespace hone::test {
namespace {

// All numbers of e4m3, by byte.
std::vector<float> numbers() {
  std::vector<float> values;
  for (int byte = 0; byte < 256; ++byte) values.push_back(e4m3_value(static_cast<std::uint8_t>(byte)));
  return values;
}

TEST(Float8, NumbersAreThoseOfTheFormat) {
  EXPECT_EQ(e4m3_value(0x7E), 448.0F);
  EXPECT_EQ(e4m3_value(0xFE), -448.0F);
  EXPECT_EQ(e4m3_value(0x38), 1.0F);
  EXPECT_EQ(e4m3_value(0x39), 1.125F);
  EXPECT_EQ(e4m3_value(0x08), 0x1p-6F);
  EXPECT_EQ(e4m3_value(0x01), 0x1p-9F);
  EXPECT_EQ(e4m3_value(0x07), 7 * 0x1p-9F);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(e4m3_value(0x80)), 0x80000000U);
  EXPECT_TRUE(std::isnan(e4m3_value(0x7F)) && std::isnan(e4m3_value(0xFF)));
  EXPECT_TRUE(has_e4m3_nan(std::vector<std::uint8_t>{1, 0xFF}) && !has_e4m3_nan(std::vector<std::uint8_t>{0x7E, 0xFE}));
}

TEST(Float8, RoundsToTheNearestNumberWithAnEvenFraction) {
  const std::vector<float> all = numbers();
  const auto expected = [&](float value) {
    const int first = std::signbit(value) ? 0x80 : 0;
    int best = first;
    for (int byte = first; byte < first + 0x7F; ++byte) {
      const double distance = std::fabs(static_cast<double>(all[static_cast<std::size_t>(byte)]) - value);
      const double least = std::fabs(static_cast<double>(all[static_cast<std::size_t>(best)]) - value);
      if (distance < least || (distance == least && byte % 2 == 0)) best = byte;
    }
    return best;
  };
  std::vector<float> values;
  for (int byte = 0; byte < 0x7E; ++byte) {
    const float one = all[static_cast<std::size_t>(byte)];
    const float next = all[static_cast<std::size_t>(byte) + 1];
    for (const float value : {one, (one + next) / 2}) {
      values.insert(values.end(), {value, std::nextafter(value, 1e9F), std::nextafter(value, -1.0F)});
    }
  }
  const RandomStream random(1, "e4m3");
  for (std::uint64_t i = 0; i < 2000; ++i) {
    values.push_back(
        static_cast<float>(std::ldexp(random.uniform(2 * i), static_cast<int>(random.below(2 * i + 1, 22)) - 13)));
  }
  for (const float value : values) {
    if (value > kE4m3Max) continue;
    ASSERT_EQ(e4m3_of(value), expected(value)) << value;
    ASSERT_EQ(e4m3_of(-value), expected(-value)) << -value;
  }
}

TEST(Float8, DequantizesToTheRoundedProductInF32) {
  std::vector<std::uint8_t> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    if ((byte & 0x7F) != 0x7F) bytes.push_back(static_cast<std::uint8_t>(byte));
  }
  for (const float scale : {1.0F, 0x1p-12F, kLeastScale, kMostScale, 0.0F, 0.0021F, 3.3e-5F, 1.7F}) {
    for (const std::size_t count : {bytes.size(), std::size_t{16}, std::size_t{7}}) {
      std::vector<BFloat16> values(count);
      dequantize_e4m3(bytes.data(), scale, static_cast<std::int64_t>(count), values.data());
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[i].bits, BFloat16(e4m3_value(bytes[i]) * scale).bits) << int{bytes[i]} << " x " << scale;
      }
    }
  }
}

TEST(Float8, ScalesAreTheLeastPowersOfTwoThatFit) {
  EXPECT_EQ(e4m3_scale(448), 1.0F);
  EXPECT_EQ(e4m3_scale(std::nextafter(448.0F, 1e9F)), 2.0F);
  EXPECT_EQ(e4m3_scale(224), 0.5F);
  EXPECT_EQ(e4m3_scale(0.02F), 0x1p-14F);
  EXPECT_EQ(e4m3_scale(0), 1.0F);
  EXPECT_EQ(e4m3_scale(1e-38F), kLeastScale);
  EXPECT_EQ(e4m3_scale(kE4m3Max * kMostScale), kMostScale);
}

// A matrix with ragged last blocks: each has its own scale, and its numbers are the nearest ones.
TEST(Float8, CountsBlocksOfAnySize) {
  for (const auto& [size, blocks] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {1, 1}, {128, 1}, {129, 2}}) {
    EXPECT_EQ(scale_blocks(size), blocks) << size;
  }
  // A header may name any dimension next to one of 0.
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(scale_blocks(most), most / 128 + 1);
}

TEST(Float8, QuantizesInBlocks) {
  const std::int64_t rows = 131;
  const std::int64_t columns = 300;
  const RandomStream random(2, "e4m3");
  std::vector<BFloat16> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double size = i % static_cast<std::size_t>(columns) < 128 ? 0.02 : 3.0;
    values[i] = BFloat16(static_cast<float>(size * random.normal(i)));
  }
  std::vector<std::uint8_t> bytes(values.size());
  std::vector<float> scales(2 * 3);
  ASSERT_TRUE(quantize_e4m3_blocks(values.data(), rows, columns, bytes.data(), scales.data()));
  std::vector<float> largest(scales.size(), 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const auto i = static_cast<std::size_t>(row * columns + column);
      const auto block = static_cast<std::size_t>(row / 128 * 3 + column / 128);
      const auto value = static_cast<float>(values[i]);
      largest[block] = std::max(largest[block], std::fabs(value));
      ASSERT_EQ(bytes[i], e4m3_of(value / scales[block]));
    }
  }
  for (std::size_t block = 0; block < scales.size(); ++block) EXPECT_EQ(scales[block], e4m3_scale(largest[block]));
  EXPECT_LT(scales[0], scales[1]);
  // Dequantized values are quantized without a loss, if perhaps by smaller scales.
  std::vector<BFloat16> again(values.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    dequantize_e4m3_row(bytes.data() + row * columns, scales.data() + row / 128 * 3, 0, columns,
                        again.data() + row * columns);
  }
  std::vector<std::uint8_t> bytes_again(bytes.size());
  ASSERT_TRUE(quantize_e4m3_blocks(again.data(), rows, columns, bytes_again.data(), scales.data()));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<BFloat16> values_again(static_cast<std::size_t>(columns));
    dequantize_e4m3_row(bytes_again.data() + row * columns, scales.data() + row / 128 * 3, 0, columns,
                        values_again.data());
    for (std::int64_t column = 0; column < columns; ++column) {
      const auto at = static_cast<std::size_t>(column);
      ASSERT_EQ(values_again[at].bits, again[static_cast<std::size_t>(row * columns + column)].bits);
    }
  }

  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 1e5F}) {
    values[200] = BFloat16(bad);
    EXPECT_FALSE(quantize_e4m3_blocks(values.data(), rows, columns, bytes.data(), scales.data())) << bad;
  }
}

}  // namespace
}  // namespace hone::test
