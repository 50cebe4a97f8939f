// Tests of Parquet and Arrow files that pyarrow wrote (tests/fixtures/data/make_tables.py), and of damaged ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/random.h"
#include "data/cells.h"
#include "data/source.h"
#include "support/paths.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<std::string> rows_of(const fs::path& path) {
  std::vector<std::string> rows;
  BadRows bad;
  Source(path, {}).for_each_row(bad, [&](Json& row, const RowPlace&) { rows.push_back(row.dump()); });
  EXPECT_EQ(bad.count(), 0) << path << ": " << bad.describe(0);
  return rows;
}

// HONE_TEST_TABLES selects another folder that the script has filled (scripts/check_data.sh).
fs::path tables() {
  const char* other = std::getenv("HONE_TEST_TABLES");
  return other != nullptr ? fs::path(other) : test::fixture("data/tables");
}

TEST(Tables, EveryFileHoldsTheRowsOfItsJsonLines) {
  int files = 0;
  for (const std::string& name : list_folder(tables())) {
    if (name.ends_with(".jsonl")) continue;
    ++files;
    const std::vector<std::string> expected = rows_of(tables() / (name.substr(0, name.find('.')) + ".jsonl"));
    const std::vector<std::string> rows = rows_of(tables() / name);
    ASSERT_EQ(rows.size(), expected.size()) << name;
    for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], expected[i]) << name << " row " << i + 1;
  }
  EXPECT_GE(files, 11);
}

// Returns the selected columns of the rows whose `key_column` equals `key`.
std::vector<std::string> chosen_rows(const fs::path& path, const RowFilter& filter) {
  std::vector<std::string> rows;
  BadRows bad;
  Source(path, {}).for_each_matching_row(filter, bad, [&](const Json& row, const RowPlace& place) {
    rows.push_back(text_of(place.number));
    for (const std::string& column : filter.columns) rows.back() += " " + row[column].dump();
  });
  return rows;
}

TEST(Tables, ChosenRowsAndColumnsAreThoseOfTheJsonLines) {
  std::size_t chosen = 0;
  for (const std::string& name : list_folder(tables())) {
    if (!name.starts_with("all.") || name.ends_with(".jsonl")) continue;
    // All rows are read if there is a list column; otherwise rows that do not pass the filter are skipped.
    for (const std::vector<std::string>& columns :
         {std::vector<std::string>{"i64", "large", "text"}, {"nothing", "word"}, {"i32", "messages"}}) {
      for (const std::string key : {"a", "", "two\nlines", "not there"}) {
        const RowFilter filter{.key_column = "text", .key = key, .columns = columns};
        const std::vector<std::string> expected = chosen_rows(tables() / "all.jsonl", filter);
        EXPECT_EQ(chosen_rows(tables() / name, filter), expected) << name << " where text is '" << key << "'";
        chosen += expected.size();
      }
    }
  }
  EXPECT_GE(chosen, 100u);
}

TEST(Tables, AColumnThatIsMissingIsNamed) {
  for (const auto& [key, column] : {std::pair("text", "no_column"), {"no_key", "text"}}) {
    try {
      (void)chosen_rows(tables() / "all.v1_snappy.parquet", {.key_column = key, .key = "a", .columns = {column}});
      FAIL() << key << ", " << column;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(text_of("all.v1_snappy.parquet: has no column 'no_")));
    }
  }
}

// Returns the result of reading a file: its rows, or the error message.
std::string outcome(const fs::path& path) {
  try {
    BadRows bad;
    std::int64_t rows = 0;
    Source(path, {}).for_each_row(bad, [&](Json& row, const RowPlace&) { rows += row.is_object() ? 1 : 0; });
    return text_of(rows, " rows");
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Tables, ATruncatedFileIsNamed) {
  const test::TemporaryDirectory folder;
  for (const std::string& name : list_folder(tables())) {
    if (name.ends_with(".jsonl")) continue;
    const std::string whole = read_file(tables() / name);
    for (const double share : {0.0, 0.01, 0.3, 0.9, 0.999}) {
      const fs::path path = folder.path() / name;
      write_file(path, whole.substr(0, static_cast<std::size_t>(share * static_cast<double>(whole.size()))));
      const std::string text = outcome(path);
      EXPECT_THAT(text, HasSubstr(path.string())) << share;
      EXPECT_EQ(text.find('\n'), std::string::npos);
    }
  }
}

// Any byte may be wrong: the file is rejected, or read without memory errors.
TEST(Tables, DamagedFilesDoNoHarm) {
  const test::TemporaryDirectory folder;
  const RandomStream random(1, "damage");
  std::uint64_t next = 0;
  for (const std::string& name : list_folder(tables())) {
    if (name.ends_with(".jsonl")) continue;
    const std::string whole = read_file(tables() / name);
    for (int i = 0; i < 12; ++i) {
      std::string damaged = whole;
      for (int n = 0; n < 1 + i % 4; ++n) {
        const std::uint64_t draw = 2 * next++;
        damaged[random.below(draw, whole.size())] = static_cast<char>(random.below(draw + 1, 256));
      }
      const fs::path path = folder.path() / name;
      write_file(path, damaged);
      EXPECT_FALSE(outcome(path).empty());
    }
  }
}

TEST(Tables, OtherFiles) {
  const test::TemporaryDirectory folder;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"PAR1", "ends too early"},
      {"hello, this is no table at all", "is not a Parquet file"},
      {"PAR1 and then PARE", "is encrypted"},
      {std::string("PAR1....\xFF\xFF\xFF\x7FPAR1", 16), "damaged footer"},
      {std::string("PAR1....\0\0\0\0PAR1", 16), "damaged metadata"},
  };
  for (const auto& [content, reason] : cases) {
    write_file(folder.path() / "a.parquet", content);
    EXPECT_THAT(outcome(folder.path() / "a.parquet"), HasSubstr(reason));
  }
  write_file(folder.path() / "a.arrow", "hello, this is no table at all");
  EXPECT_THAT(outcome(folder.path() / "a.arrow"), HasSubstr("damaged Arrow data"));
  write_file(folder.path() / "a.arrow", "FEA1");
  EXPECT_THAT(outcome(folder.path() / "a.arrow"), HasSubstr("Feather version 1"));
}

TEST(Cells, DatesTimesAndDecimals) {
  EXPECT_EQ(date_text(0), "1970-01-01");
  EXPECT_EQ(date_text(-1), "1969-12-31");
  EXPECT_EQ(date_text(19782), "2024-02-29");
  EXPECT_EQ(time_text(47107250, TimeUnit::kMilliseconds), "13:05:07.250");
  EXPECT_EQ(timestamp_text(-1, TimeUnit::kNanoseconds, true), "1969-12-31T23:59:59.999999999Z");
  (void)timestamp_text(std::numeric_limits<std::int64_t>::min(), TimeUnit::kNanoseconds, false);
  EXPECT_EQ(decimal_text(std::string("\0\x7B", 2), 2), "1.23");
  EXPECT_EQ(decimal_text("\xFF", 2), "-0.01");
  EXPECT_EQ(decimal_text("\x80", 0), "-128");
  EXPECT_EQ(decimal_text("", 1), "0.0");
  EXPECT_EQ(decimal_text("\x05", -2), "500");
  EXPECT_EQ(half_value(0x3C00), 1.0);
  EXPECT_EQ(half_value(0x8001), -std::ldexp(1.0, -24));
}

}  // namespace
}  // namespace hone
