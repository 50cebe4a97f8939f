// FP8 weights in the order of fragments: what a thread of a kernel makes of its words are the numbers of the bytes.
#include "backend/fp8_fragments.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "core/float8.h"
#include "core/random.h"
#include "support/fp8_fragments.h"

namespace hone::test {
namespace {

constexpr std::int64_t kRows = 24;
constexpr std::int64_t kColumns = 384;

// Every byte that stands for a number, several times.
std::vector<std::uint8_t> some_bytes() {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kRows * kColumns));
  const RandomStream random(3, "fragments");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(i < 256 ? i : random.below(i, 256));
    bytes[i] = (byte & 0x7F) == 0x7F ? 0x80 : byte;
  }
  return bytes;
}

std::vector<std::uint8_t> in_fragments(const std::vector<std::uint8_t>& bytes) {
  std::vector<std::uint8_t> fragments(bytes.size());
  fp8_to_fragments(bytes, kColumns, fragments);
  return fragments;
}

TEST(Fp8Fragments, WordsAreTheNumbersOfTheirColumns) {
  const std::vector<std::uint8_t> bytes = some_bytes();
  const std::vector<std::uint8_t> fragments = in_fragments(bytes);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t link = 0; link < kColumns / 16; ++link) {
      for (std::int64_t thread = 0; thread < 4; ++thread) {
        const std::uint32_t word = fragment_word(fragments, kColumns, row, link, thread);
        for (const int eight : {0, 1}) {
          const std::uint32_t spread = eight == 0 ? spread_first(word) : spread_second(word);
          for (const int half : {0, 1}) {
            const std::int64_t column = link * 16 + thread * 2 + eight * 8 + half;
            const float value = std::bit_cast<float>((half == 0 ? spread << 16 : spread & 0xFFFF0000U)) * 0x1p120F;
            const float expected = e4m3_value(bytes[static_cast<std::size_t>(row * kColumns + column)]);
            ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected))
                << "row " << row << ", column " << column;
          }
        }
      }
    }
  }
}

// Whole groups of 8 rows keep their place, so that parts of a weight can be written alone.
TEST(Fp8Fragments, GroupsOfRowsKeepTheirPlace) {
  const std::vector<std::uint8_t> bytes = some_bytes();
  const std::vector<std::uint8_t> fragments = in_fragments(bytes);
  EXPECT_EQ(rows_of_fragments(fragments, kColumns), bytes);
  const std::size_t group = 8 * kColumns;
  const std::vector<std::uint8_t> second(bytes.begin() + group, bytes.begin() + 2 * group);
  const std::vector<std::uint8_t> alone = in_fragments(second);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), fragments.begin() + group));
}

TEST(Fp8Fragments, AreForWholeUnitsOfAGpu) {
  EXPECT_TRUE(fp8_in_fragments(DeviceKind::kCuda, 8, 128, 8));
  EXPECT_FALSE(fp8_in_fragments(DeviceKind::kCpu, 8, 128, 8));
  EXPECT_FALSE(fp8_in_fragments(DeviceKind::kCuda, 12, 128, 128));
  EXPECT_FALSE(fp8_in_fragments(DeviceKind::kCuda, 8, 192, 128));
  EXPECT_FALSE(fp8_in_fragments(DeviceKind::kCuda, 8, 128, 4));
}

}  // namespace
}  // namespace hone::test
