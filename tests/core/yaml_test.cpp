#include "core/yaml.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace hone {
namespace {

std::string yaml_error(const std::string& text) {
  try {
    (void)parse_yaml(text, "f.yaml");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Yaml, KeepsTextAndLines) {
  const YamlValue value = parse_yaml("# recipe\na: 4.0e-05\nb:\n  - x\n  - 'no'\nc: {d: null, e: ~}\n", "f");
  ASSERT_EQ(value.kind, YamlValue::Kind::kMap);
  EXPECT_EQ(value.find("a")->scalar, "4.0e-05");
  EXPECT_EQ(value.find("a")->line, 2);
  ASSERT_EQ(value.find("b")->items.size(), 2u);
  EXPECT_EQ(value.find("b")->items[1].scalar, "no");
  EXPECT_EQ(value.find("b")->items[1].line, 5);
  EXPECT_EQ(value.find("c")->find("d")->kind, YamlValue::Kind::kNull);
  EXPECT_EQ(value.find("z"), nullptr);
}

TEST(Yaml, ReadsAliases) {
  const YamlValue value = parse_yaml("a: &x {b: [1, 2]}\nc: *x\nd: [*x, &y z, *y]\n*y : 5\n", "f");
  EXPECT_EQ(value.find("c")->find("b")->items[1].scalar, "2");
  EXPECT_EQ(value.find("c")->line, 2);
  EXPECT_EQ(value.find("d")->items[0].find("b")->items.size(), 2u);
  EXPECT_EQ(value.find("d")->items[2].scalar, "z");
  EXPECT_EQ(value.find("z")->scalar, "5");
}

TEST(Yaml, ReadsJson) {
  const YamlValue value = parse_yaml(R"({"a": [1, "two"], "b": {"c": ""}})", "f");
  EXPECT_EQ(value.find("a")->items[1].scalar, "two");
  EXPECT_EQ(value.find("b")->find("c")->kind, YamlValue::Kind::kScalar);
}

TEST(Yaml, ReportsWhereAndWhat) {
  EXPECT_EQ(parse_yaml("", "f").kind, YamlValue::Kind::kNull);
  EXPECT_EQ(yaml_error("a: 1\nb: [1, 2\n"), "f.yaml:3: not valid YAML: end of sequence flow not found");
  EXPECT_EQ(yaml_error("a: 1\nb: 2\na: 3\n"), "f.yaml:3: the key 'a' is given twice");
  EXPECT_EQ(yaml_error("a: 1\n---\nb: 2\n"), "f.yaml:3: a second document starts here, one is expected");
  EXPECT_EQ(yaml_error("? [x, y]\n: 1\n"), "f.yaml:1: a key must be a plain word");
}

TEST(Yaml, RefusesBombs) {
  EXPECT_NE(yaml_error(std::string(5000, '[')), "no error");
  std::string nested = "0";
  for (int i = 0; i < 70; ++i) nested = "[" + nested + "]";
  EXPECT_EQ(yaml_error(nested), "f.yaml:1: nested deeper than 64 levels");
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last;
    for (int j = 0; j < 9; ++j) laughs += ", " + last;
    laughs += "]\n";
  }
  EXPECT_NE(yaml_error(laughs).find("more than 100000 values"), std::string::npos);
  EXPECT_EQ(yaml_error("&a [*a]"), "f.yaml:1: a value holds itself");
  EXPECT_NE(yaml_error(",: a\n"), "no error");
}

TEST(Yaml, ReadsTheBooleansOfYaml11) {
  for (const char* yes : {"yes", "Yes", "TRUE", "true", "on", "y"}) EXPECT_EQ(yaml_boolean(yes), true) << yes;
  for (const char* no : {"no", "NO", "false", "off", "n"}) EXPECT_EQ(yaml_boolean(no), false) << no;
  for (const char* other : {"", "1", "nope", "truely", "yess"}) EXPECT_EQ(yaml_boolean(other), std::nullopt) << other;
}

TEST(Yaml, QuotesWhatWouldReadBackOtherwise) {
  for (const std::string text : {"plain", "a/b.txt", "", "no", "1e3", "12", "null", "Null", "NULL", "a: b", "#x",
                                 "tab\there", "q\"\\", "line\nbreak", "é", "-", "[a]", "~", " lead"}) {
    const YamlValue value = parse_yaml("k: " + yaml_quoted(text), "f");
    EXPECT_EQ(value.find("k")->kind, YamlValue::Kind::kScalar) << text;
    EXPECT_EQ(value.find("k")->scalar, text);
  }
  EXPECT_EQ(yaml_quoted("plain"), "plain");
  EXPECT_EQ(yaml_quoted("no"), "\"no\"");
}

TEST(Yaml, ShowsAValueOnOneShortLine) {
  EXPECT_EQ(shown("a\nb\x01"), "'a\\nb?'");
  EXPECT_EQ(shown(std::string(100, 'x')), "'" + std::string(60, 'x') + "...'");
  EXPECT_EQ(shown(std::string(59, 'x') + "é!"), "'" + std::string(59, 'x') + "...'");
  EXPECT_EQ(shown(parse_yaml("{a: [1, 2], b: null}", "f")), "{a: [1, 2], b: null}");
}

}  // namespace
}  // namespace hone
