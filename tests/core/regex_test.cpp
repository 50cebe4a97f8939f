// Tests of regular expressions.
#include "core/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hone::test {
namespace {

using Texts = std::vector<std::string>;

Texts matches_of(std::string_view expression, std::string_view text) {
  Texts matches;
  Regex(expression).for_each_match(text, [&](const RegexMatch& match) { matches.emplace_back(match.whole); });
  return matches;
}

TEST(Regex, FitsTheWholeText) {
  EXPECT_TRUE(Regex("a|ab").fits("ab"));
  EXPECT_FALSE(Regex("a|ab").fits("abc"));
  EXPECT_FALSE(Regex("b").fits("ab"));
  EXPECT_TRUE(Regex("").fits(""));
  EXPECT_TRUE(Regex("").fits({}));
  EXPECT_TRUE(Regex(".").fits("é"));
  EXPECT_TRUE(Regex(".\\n.").fits("\r\n\r")) << "a carriage return ends no line";
}

// The expected matches are those of Python's re.finditer.
TEST(Regex, FindsMatchesThatDoNotOverlap) {
  EXPECT_EQ(matches_of("aa", "aaaaa"), (Texts{"aa", "aa"}));
  EXPECT_EQ(matches_of("^a", "aa"), Texts{"a"});
  EXPECT_EQ(matches_of("(?<=b)a", "aba"), Texts{"a"});
  EXPECT_EQ(matches_of("x*", "axé"), (Texts{"", "x", "", ""}));
  EXPECT_EQ(matches_of("a$", "a\n"), Texts{"a"});
  EXPECT_EQ(matches_of("b", "aaa"), Texts{});
}

TEST(Regex, KnowsTheFirstGroup) {
  Texts groups;
  const auto add = [&](const RegexMatch& match) { groups.emplace_back(match.group); };
  Regex("(a)|b").for_each_match("ab", add);
  Regex("c").for_each_match("c", add);
  Regex("(d)(e)").for_each_match("de", add);
  EXPECT_EQ(groups, (Texts{"a", "", "", "d"}));
}

TEST(Regex, NamesWhatIsWrong) {
  try {
    (void)Regex("a(b");
    FAIL() << "no error";
  } catch (const RegexError& error) {
    EXPECT_STREQ(error.what(), "missing closing parenthesis");
    EXPECT_EQ(error.at(), 3u);
  }
  EXPECT_THROW((void)Regex("a").fits("\xFF"), RegexError);
  EXPECT_THROW(Regex("a").for_each_match("a\xFF", [](const RegexMatch&) {}), RegexError);
}

TEST(Regex, LimitsEndAMatch) {
  const std::string text(200, 'a');
  EXPECT_THROW((void)Regex("(a*)*[bc]").fits(text), RegexError);
  EXPECT_TRUE(Regex(".*?b", {.steps = 300}).fits(text + "b"));
  EXPECT_THROW((void)Regex(".*?b", {.steps = 100}).fits(text + "b"), RegexError);
}

// A search that checked the encoding of the whole text for each match would read 40 GB here.
TEST(Regex, ManyMatchesTakeLittleTime) { EXPECT_EQ(matches_of("[ab]", std::string(400'000, 'b')).size(), 400'000u); }

}  // namespace
}  // namespace hone::test
