// Tests which files of a dataset are read, and the errors if none can be.
#include "data/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "core/error.h"
#include "core/files.h"
#include "data/dataset.h"
#include "support/paths.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Globs, AsInAShell) {
  for (const auto& [pattern, path] : std::vector<std::pair<std::string, std::string>>{{"a/*.json", "a/b.json"},
                                                                                      {"**/*.json", "b.json"},
                                                                                      {"**/*.json", "a/b/c.json"},
                                                                                      {"a/**", "a/b/c"},
                                                                                      {"train-?.csv", "train-1.csv"},
                                                                                      {"[a-c]x", "bx"},
                                                                                      {"[!a]x", "bx"},
                                                                                      {"{a,b}.txt", "b.txt"},
                                                                                      {"*", "a"}}) {
    EXPECT_TRUE(glob_matches(pattern, path)) << pattern << " " << path;
  }
  for (const auto& [pattern, path] : std::vector<std::pair<std::string, std::string>>{
           {"*.json", "a/b.json"}, {"a?b", "a/b"}, {"[!a]x", "ax"}, {"a", "ab"}, {"ab", "a"}, {"{a,b}", "c"}}) {
    EXPECT_FALSE(glob_matches(pattern, path)) << pattern << " " << path;
  }
  EXPECT_FALSE(glob_matches(std::string(60, '*') + "b", std::string(200, 'a')));
}

TEST(DataFiles, AsTheReadmeSays) {
  const std::vector<std::string> paths = {"data/x.csv", "data/y.csv", "more/z.csv"};
  const auto splits = [&](const std::string& readme, const std::string& config = "") {
    return data_files_of({.paths = paths, .readme = readme, .config = config, .name = "d"});
  };
  EXPECT_THAT(splits("---\nconfigs:\n- config_name: a\n  data_files: data/*.csv\n---\n"),
              ElementsAre(Pair("train", ElementsAre("data/x.csv", "data/y.csv"))));
  EXPECT_THAT(splits("---\nconfigs:\n- config_name: a\n  data_files:\n    test: more/*\n    train: [data/y.csv]\n---"),
              ElementsAre(Pair("test", ElementsAre("more/z.csv")), Pair("train", ElementsAre("data/y.csv"))));
  EXPECT_THAT(splits("---\nconfigs:\n- config_name: a\n- config_name: b\n  data_dir: more\n---\n", "b"),
              ElementsAre(Pair("train", ElementsAre("more/z.csv"))));
  EXPECT_THAT(splits("no front matter", "more"), ElementsAre(Pair("train", ElementsAre("more/z.csv"))));
  EXPECT_THROW((void)splits("---\nconfigs:\n- config_name: a\n- config_name: b\n---\n"), Error);
  for (const char* readme : {"---", "---\n", "---\n: [\n---\n", "---\nconfigs: 7\n---\n", "---\nconfigs: [7]\n---\n"}) {
    EXPECT_EQ(splits(readme).size(), 1u) << readme;
  }
}

std::string outcome(const DatasetName& dataset, const std::string& split = "train") {
  try {
    BadRows bad;
    std::int64_t rows = 0;
    open_dataset(dataset, {.split = split}).for_each_row(bad, [&](Json&, const RowPlace&) { ++rows; });
    return text_of(rows, " rows");
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Datasets, PatternsAndSeveralFiles) {
  const test::TemporaryDirectory folder;
  for (const char* name : {"a.jsonl", "b.jsonl", "sub/c.jsonl"}) {
    hone::create_directories((folder.path() / name).parent_path());
    write_file(folder.path() / name, "{\"n\": 1}\n");
  }
  write_file(folder.path() / "dataset_info.json", "{\"no\": \"data\"}");
  const std::string at = folder.path().string();
  EXPECT_EQ(outcome({.name = at}), "3 rows");
  EXPECT_EQ(outcome({.name = at + "/*.jsonl"}), "2 rows");
  EXPECT_EQ(outcome({.name = at + "/**/*.jsonl"}), "3 rows");
  EXPECT_EQ(outcome({.name = at + "/a.jsonl, " + at + "/sub/c.jsonl"}), "2 rows");
  EXPECT_EQ(outcome({.name = at, .config = "sub"}), "1 rows");
  EXPECT_THAT(outcome({.name = at + "/*.csv"}), HasSubstr("matches no data file"));
  EXPECT_THAT(outcome({.name = at + "/none/*.csv"}), HasSubstr("there is no folder"));
  EXPECT_THAT(outcome({.name = at + "/a.jsonl," + at + "/none.jsonl"}), HasSubstr("no such file or folder"));
  EXPECT_THAT(outcome({.name = at + "/*.jsonl"}, "test"), HasSubstr("a pattern has no split 'test'"));
  EXPECT_THAT(outcome({.name = at}, "test"), HasSubstr("has no split 'test'; it has: train"));
  EXPECT_THAT(outcome({.name = "no/such.jsonl"}), HasSubstr("no such file or folder"));
}

}  // namespace
}  // namespace hone
