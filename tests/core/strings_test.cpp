#include "core/strings.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(Strings, SizesInBytes) {
  EXPECT_EQ(parse_bytes("80GiB"), std::uint64_t{80} << 30);
  EXPECT_EQ(parse_bytes("5GB"), 5'000'000'000u);
  EXPECT_EQ(parse_bytes("1.5 kib"), 1536u);
  EXPECT_EQ(parse_bytes("200"), 200u);
  for (const char* bad : {"", "GiB", "lots", "-1GB", "0", "1GBs", "1e400", "nan", "inf", "5PB", "1000000000GB"}) {
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace hone
