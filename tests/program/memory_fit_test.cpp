#include "program/memory_fit.h"

#include <gtest/gtest.h>

namespace hone::test {
namespace {

const std::vector<std::string> kChanges{"first", "second", "third"};

TEST(MemoryFit, TriesChangesInOrderUntilTheyFit) {
  const std::size_t after[] = {90, 90, 40};
  std::size_t asked = 0;
  const BytesAfter bytes_after = [&](std::size_t count) {
    ++asked;
    return after[count - 1];
  };
  EXPECT_TRUE(changes_to_fit(kChanges, 100, 100, bytes_after).empty());
  EXPECT_EQ(asked, 0u) << "it fits as it is";
  const std::vector<FitChange> one = changes_to_fit(kChanges, 90, 100, bytes_after);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(asked, 1u);
  EXPECT_EQ(advice_text(one, 90), "it fits with first (takes 90 B)");
  const std::vector<FitChange> two = changes_to_fit(kChanges, 30, 100, bytes_after);
  EXPECT_EQ(advice_text(two, 30),
            "even with first (takes 90 B), then third (takes 40 B) it still lacks 10 B of memory");
  EXPECT_EQ(advice_text({}, 30),
            "no option saves enough memory: use a smaller model, shorter sequences or a larger device");
}

}  // namespace
}  // namespace hone::test
