// Regular expressions over names, against what Python's re says (tests/fixtures/model/make_name_patterns.py).
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
            "key: 'a(b' is no regular expression that hone reads: a ( without its ) at character 4");
  EXPECT_EQ(error_of_pattern("(a)\\1"),
            "key: '(a)\\1' is no regular expression that hone reads: a back reference at character 5");
  for (const char* source : {"(?<=a)b", "(?<!a)b", "(?>a)", "a++", "(?x)a b", "(?P=n)", "\\x61", "(?a:b)", "("}) {
    EXPECT_NE(error_of_pattern(source), "no error") << source;
  }
}

// What makes backtracking engines take exponential time, and what would take all memory.
TEST(NamePattern, NoPatternTakesLong) {
  const std::string name(200, 'a');
  EXPECT_FALSE(NamePattern("(a*)*b", "key").fits(name));
  EXPECT_FALSE(NamePattern("(a|a|aa)*(a|a)*$b", "key").fits(name));
  EXPECT_FALSE(NamePattern("(?=(?=(?=(a*)*b)a*b)a*b)(a*)*b", "key").fits(name));
  EXPECT_TRUE(NamePattern("(((a?){20}){20})", "key").fits(name));
  EXPECT_NE(error_of_pattern("((((a{1000}){1000}){1000}){1000}){1000}").find("more than 10000 steps"),
            std::string::npos);
  EXPECT_NE(error_of_pattern("a{99999999999}").find("repetitions"), std::string::npos);
  EXPECT_NE(error_of_pattern(std::string(100'000, '(')).find("groups in each other"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
