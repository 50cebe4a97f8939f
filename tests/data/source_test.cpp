#include "data/source.h"
#include "core/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "support/paths.h"

namespace hone {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

struct ReadRows {
  std::vector<std::string> rows;     // as JSON
  std::vector<std::int64_t> places;  // line or row numbers
  BadRows bad;
};

ReadRows read_rows(const std::filesystem::path& path, const SourceOptions& options = {}) {
  ReadRows out;
  Source(path, options).for_each_row(out.bad, [&](Json& row, const RowPlace& place) {
    out.rows.push_back(row.dump());
    out.places.push_back(place.number);
  });
  return out;
}

std::string error_of(const std::filesystem::path& path, const SourceOptions& options = {}) {
  try {
    (void)read_rows(path, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class SourceTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, std::string_view content) {
    const std::filesystem::path path = folder_.path() / name;
    hone::create_directories(path.parent_path());
    write_file(path, content);
    return path;
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  test::TemporaryDirectory folder_;
};

TEST_F(SourceTest, JsonLines) {
  const ReadRows read = read_rows(file("a.jsonl", "\xEF\xBB\xBF{\"a\": 1}\r\n{\"b\": \"\\u00e9\"}\n\n \n"));
  EXPECT_THAT(read.rows, ElementsAre("{\"a\":1}", "{\"b\":\"\u00e9\"}"));
  EXPECT_THAT(read.places, ElementsAre(1, 2));
  EXPECT_EQ(read.bad.count(), 0);
}

TEST_F(SourceTest, BadLinesAreCountedAndNamed) {
  const std::string deep = "{\"a\":" + std::string(400, '[') + std::string(400, ']') + "}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"a\": 1", "not valid JSON (column "},
      {"[1, 2]", "not a JSON object"},
      {"{}", "empty object"},
      {"", "empty line"},
      {"{\"a\": \"\xFF\"}", "not valid JSON (column "},
      {"{\"a\": 1e999}", "not valid JSON"},
      {"{\"a\": NaN}", "not valid JSON (column "},
      {deep, "nested deeper than 256"},
      {"{\"a\": 1} {\"b\": 2}", "not valid JSON (column "},
  };
  for (const auto& [line, reason] : cases) {
    const auto path = file("bad.jsonl", "{\"x\": 1}\n" + line + "\n{\"x\": 2}\n");
    const ReadRows read = read_rows(path);
    EXPECT_THAT(read.places, ElementsAre(1, 3)) << line;
    ASSERT_EQ(read.bad.count(), 1) << line;
    EXPECT_THAT(read.bad.first()[0], HasSubstr(path.string() + " line 2: " + reason));
  }
}

TEST_F(SourceTest, DeepBracketsInsideTextAreFine) {
  const ReadRows read = read_rows(file("a.jsonl", "{\"a\": \"" + std::string(1000, '[') + "\\\"\"}\n"));
  EXPECT_EQ(read.rows.size(), 1u);
}

TEST_F(SourceTest, BadRowsAreShownByReason) {
  std::string content;
  for (int i = 0; i < 1234; ++i) content += "oops\n";
  const auto path = file("bad.jsonl", content + "[1]\n{\"a\": 1}");
  const ReadRows read = read_rows(path);
  EXPECT_EQ(read.bad.count(), 1235);
  EXPECT_EQ(read.bad.first().size(), 2u);
  EXPECT_EQ(read.bad.describe(1236), "1,235 of 1,236 rows left out: " + path.string() +
                                         " line 1 and 1,233 more: not valid JSON (column 1); " + path.string() +
                                         " line 1235: not a JSON object");
  EXPECT_EQ(BadRows().describe(3), "");
  BadRows many;
  const RowPlace place{.file = std::make_shared<const std::string>("f"), .number = 7};
  for (int i = 0; i < 8; ++i) many.add(place, "reason " + std::to_string(i));
  EXPECT_EQ(many.first().size(), BadRows::kShown);
  EXPECT_THAT(many.describe(9), EndsWith("; f line 7: reason 4; and 3 for other reasons"));
}

TEST_F(SourceTest, JsonIsAnArrayOrLines) {
  const ReadRows array = read_rows(file("a.json", " [{\"a\": 1},\n 7, {\"a\": 2}]"));
  EXPECT_THAT(array.rows, ElementsAre("{\"a\":1}", "{\"a\":2}"));
  EXPECT_THAT(array.bad.first()[0], EndsWith("a.json row 2: not a JSON object"));
  EXPECT_THAT(read_rows(file("b.json", "{\"a\": 1}\n{\"a\": 2}\n")).rows, ElementsAre("{\"a\":1}", "{\"a\":2}"));
  EXPECT_THAT(error_of(file("c.json", "[{\"a\": 1},\n {]")), HasSubstr("not valid JSON at line 2"));
  EXPECT_THAT(error_of(file("d.json", std::string(300, '['))), HasSubstr("nested deeper"));
}

TEST_F(SourceTest, Text) {
  const auto path = file("a.txt", "one\ntwo\r\n\n\nthree\n \nfour");
  EXPECT_THAT(read_rows(path).rows, ElementsAre(R"({"text":"one\ntwo\r\n\n\nthree\n \nfour"})"));
  const ReadRows paragraphs = read_rows(path, {.sample_by = SampleBy::kParagraph});
  EXPECT_THAT(paragraphs.rows, ElementsAre(R"({"text":"one\ntwo"})", R"({"text":"three"})", R"({"text":"four"})"));
  EXPECT_THAT(paragraphs.places, ElementsAre(1, 5, 7));
  EXPECT_EQ(paragraphs.bad.count(), 0);
  const ReadRows lines = read_rows(path, {.sample_by = SampleBy::kLine});
  EXPECT_THAT(lines.rows,
              ElementsAre(R"({"text":"one"})", R"({"text":"two"})", R"({"text":"three"})", R"({"text":"four"})"));
  EXPECT_THAT(lines.places, ElementsAre(1, 2, 5, 7));
  EXPECT_EQ(lines.bad.count(), 3);
}

TEST_F(SourceTest, EmptyTextIsABadRow) {
  for (const std::string content : {"", " \n\n"}) {
    const ReadRows read = read_rows(file("e.txt", content));
    EXPECT_TRUE(read.rows.empty());
    EXPECT_EQ(read.bad.count(), 1);
  }
  EXPECT_EQ(read_rows(file("l.txt", "a\n"), {.sample_by = SampleBy::kLine}).bad.count(), 0);
}

TEST_F(SourceTest, AFolderInTheOrderOfItsPaths) {
  file("sub/b.jsonl", "{\"n\": 2}");
  file("a.jsonl", "{\"n\": 1}");
  file("c.txt", "three");
  file("README.md", "not data");
  file(".hidden/d.jsonl", "{\"n\": 4}");
  EXPECT_THAT(read_rows(folder()).rows, ElementsAre("{\"n\":1}", "{\"text\":\"three\"}", "{\"n\":2}"));
}

TEST_F(SourceTest, SplitsByFileNameThenFolder) {
  file("data/train-00000-of-00002.jsonl", "{\"n\": 1}");
  file("data/train-00001-of-00002.jsonl", "{\"n\": 2}");
  file("data/test-00000-of-00001.jsonl", "{\"n\": 3}");
  file("data/latest.jsonl", "{\"n\": 4}");
  EXPECT_THAT(read_rows(folder()).rows, ElementsAre("{\"n\":1}", "{\"n\":2}"));
  EXPECT_THAT(read_rows(folder(), {.split = "test"}).rows, ElementsAre("{\"n\":3}"));
  EXPECT_THAT(error_of(folder(), {.split = "validation"}), HasSubstr("no split 'validation'; it has: test, train"));
}

TEST_F(SourceTest, SplitsByFolderName) {
  file("train/a.jsonl", "{\"n\": 1}");
  file("dev/a.jsonl", "{\"n\": 2}");
  EXPECT_THAT(read_rows(folder()).rows, ElementsAre("{\"n\":1}"));
  EXPECT_THAT(read_rows(folder(), {.split = "validation"}).rows, ElementsAre("{\"n\":2}"));
}

TEST_F(SourceTest, Errors) {
  EXPECT_THAT(error_of(folder()), HasSubstr("the folder holds no data"));
  EXPECT_THAT(error_of(folder() / "none.jsonl"), HasSubstr("no such file or folder"));
  EXPECT_THAT(error_of(file("a.xyz", "")), HasSubstr("'.xyz' is not a known format"));
  EXPECT_THAT(error_of(file("a.jsonl", "{}"), {.split = "test"}), HasSubstr("no split 'test'"));
  EXPECT_THROW((void)sample_by_from_name("word"), Error);
}

}  // namespace
}  // namespace hone
