// Compares regular expressions over names with Python's re (tests/fixtures/model/make_name_patterns.py).
#include "model/name_pattern.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "support/paths.h"

namespace hone::test {
namespace {

std::string error_of_pattern(const std::string& source) {
  try {
    (void)NamePattern(source, "key");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(NamePattern, FitsWhatPythonsDoes) {
  const Json known = read_json(fixture("model/name_patterns.json"));
  const auto names = known.at("names").get<std::vector<std::string>>();
  std::size_t checked = 0;
  for (const Json& row : known.at("patterns")) {
    const auto source = row.at(0).get<std::string>();
    const auto expected = row.at(1).get<std::string>();
    const NamePattern pattern(source, "key");
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(pattern.fits(names[i]), expected[i] == '1') << source << " on " << names[i];
      ++checked;
    }
  }
  EXPECT_GT(checked, 2000u);
}

TEST(NamePattern, RefusesWhatIsNone) {
  const Json known = read_json(fixture("model/name_patterns.json"));
  EXPECT_GE(known.at("wrong").size(), 8u);
  for (const Json& source : known.at("wrong")) {
    EXPECT_NE(error_of_pattern(source.get<std::string>()), "no error") << source;
  }
  EXPECT_EQ(error_of_pattern("a(b"),
            "key: 'a(b' is no regular expression that hone reads: missing closing parenthesis at character 3");
  EXPECT_EQ(error_of_pattern("a[[:alpha:]]"),
            "key: 'a[[:alpha:]]' is no regular expression that hone reads: a [ in a class at character 3");
  for (const char* source : {"(?x)a b", "(?P=n)", "\\x61", "(?a:b)", "(", "(*UTF)a", "\\Qa\\E", "(?R)", "(?(1)a)"}) {
    EXPECT_NE(error_of_pattern(source), "no error") << source;
  }
}

TEST(NamePattern, KnowsReferencesAndLookBehind) {
  EXPECT_TRUE(NamePattern("(?P<n>a).(?P=n)", "key").fits("a.a"));
  EXPECT_FALSE(NamePattern("(a|b).\\1", "key").fits("a.b"));
  EXPECT_TRUE(NamePattern(".*(?<!\\.)_proj", "key").fits("mlp.up_proj"));
  EXPECT_FALSE(NamePattern("a\\Z", "key").fits("a\n"));
}

// Patterns that take exponential time in backtracking engines, and patterns that would exhaust memory.
TEST(NamePattern, NoPatternTakesLong) {
  const std::string name(200, 'a');
  EXPECT_FALSE(NamePattern("(a|a|aa)*(a|a)*$b", "key").fits(name));
  EXPECT_TRUE(NamePattern("(((a?){20}){20})", "key").fits(name));
  const NamePattern slow("(a*)*[bc]", "key");
  try {
    (void)slow.fits(name);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "key: '(a*)*[bc]' on " + name + ": match limit exceeded (a simpler regular expression)");
  }
  EXPECT_NE(error_of_pattern("((((a{1000}){1000}){1000}){1000}){1000}").find("too large"), std::string::npos);
  EXPECT_NE(error_of_pattern("a{99999999999}").find("too big"), std::string::npos);
  EXPECT_NE(error_of_pattern(std::string(9'000, '(')), "no error");
  EXPECT_NE(error_of_pattern(std::string(100'000, 'a')).find("more than 10000"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
