// Tests of CSV, and of files compressed by gzip and zstd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "data/source.h"
#include "support/paths.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string gzip(std::string_view text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class FilesTest : public testing::Test {
 protected:
  fs::path file(const std::string& name, std::string_view content) {
    const fs::path path = folder_.path() / name;
    write_file(path, content);
    return path;
  }
  // Returns the rows as JSON, followed by the faults.
  std::vector<std::string> read(const std::string& name, std::string_view content, const SourceOptions& options = {}) {
    std::vector<std::string> rows;
    BadRows bad;
    try {
      Source(file(name, content), options).for_each_row(bad, [&](Json& row, const RowPlace&) {
        rows.push_back(row.dump());
      });
    } catch (const Error& error) {
      rows.emplace_back(error.what());
    }
    for (const std::string& line : bad.first()) rows.push_back(line);
    for (std::string& row : rows) {
      const std::size_t at = row.find(folder_.path().string() + "/");
      if (at != std::string::npos) row.erase(at, folder_.path().string().size() + 1);
    }
    return rows;
  }

 private:
  test::TemporaryDirectory folder_;
};

TEST_F(FilesTest, Csv) {
  EXPECT_THAT(read("a.csv", "\xEF\xBB\xBFprompt,completion\r\n\"a, \"\"b\"\"\",\"two\nlines\"\n\n,2\nlast,row"),
              ElementsAre(R"({"prompt":"a, \"b\"","completion":"two\nlines"})", R"({"prompt":"","completion":"2"})",
                          R"({"prompt":"last","completion":"row"})"));
  EXPECT_THAT(read("a.tsv", "a\tb\n1,5\t\"x\ty\"\n"), ElementsAre(R"({"a":"1,5","b":"x\ty"})"));
  EXPECT_THAT(read("a.csv", ",text\n0,hello\n"), ElementsAre(R"({"Unnamed: 0":"0","text":"hello"})"));
  EXPECT_THAT(read("a.csv", "a\r\"1\"\r\n2\r\n"), ElementsAre(R"({"a":"1"})", R"({"a":"2"})"));
}

TEST_F(FilesTest, BadRecordsAreNamed) {
  EXPECT_THAT(read("a.csv", "a,b\n1\n1,2,3\n\"x\"y,2\n\xFF,2\nfine,\"one\n\ntwo\"\n1,\"open\n"),
              ElementsAre(R"({"a":"fine","b":"one\n\ntwo"})", "a.csv line 2: 1 field, the header names 2",
                          "a.csv line 3: 3 fields, the header names 2",
                          "a.csv line 4: text after the closing quote of a field (a quote inside one is written twice)",
                          "a.csv line 5: column 'a' is not valid UTF-8",
                          "a.csv line 9: the quote opened in line 9 is not closed"));
  EXPECT_THAT(read("a.csv", ""), ElementsAre("a.csv: is empty (its first line must name the columns)"));
  EXPECT_THAT(read("a.csv", "a,b,a\n"), ElementsAre("a.csv: the header names the column 'a' twice"));
  EXPECT_THAT(read("a.csv", "a,\"b\n"), ElementsAre("a.csv line 1: the quote opened in line 1 is not closed"));
}

TEST_F(FilesTest, Compressed) {
  const std::string lines = "{\"a\":1}\n{\"a\":\"two\"}\n";
  for (const std::string& content :
       {gzip(lines), gzip("{\"a\":1}\n{\"a\"") + gzip(":\"two\"}"), gzip(lines) + std::string(99, '\0')}) {
    EXPECT_THAT(read("a.jsonl.gz", content), ElementsAre("{\"a\":1}", "{\"a\":\"two\"}"));
  }
  for (const std::string& content : {zstd(lines), zstd("{\"a\":1}\n{\"a\"") + zstd(":\"two\"}")}) {
    EXPECT_THAT(read("a.jsonl.zst", content), ElementsAre("{\"a\":1}", "{\"a\":\"two\"}"));
  }
  EXPECT_THAT(read("a.csv.gz", gzip("a,b\n1,2\n")), ElementsAre(R"({"a":"1","b":"2"})"));
  EXPECT_THAT(read("a.json.zst", zstd("[{\"a\":1}]")), ElementsAre("{\"a\":1}"));
  EXPECT_THAT(read("a.txt.gz", gzip("hello\nyou")), ElementsAre(R"({"text":"hello\nyou"})"));
}

// Rows that span several decompressed pieces.
TEST_F(FilesTest, LongCompressedFiles) {
  std::string lines;
  std::string records = "text\n";
  for (int i = 0; i < 3000; ++i) {
    const std::string text(static_cast<std::size_t>(i), static_cast<char>('a' + i % 26));
    lines += "{\"text\":\"" + text + "\"}\n";
    records += "\"" + text + "\"\n";
  }
  const std::vector<std::string> plain = read("a.jsonl", lines);
  ASSERT_EQ(plain.size(), 3000u);
  EXPECT_EQ(read("a.jsonl.gz", gzip(lines)), plain);
  EXPECT_EQ(read("a.jsonl.zst", zstd(lines)), plain);
  EXPECT_EQ(read("a.csv.gz", gzip(records)), plain);
  std::string array = lines.substr(0, lines.size() - 1);
  for (std::size_t at = 0; (at = array.find("}\n", at)) != std::string::npos;) array.replace(at, 2, "},");
  EXPECT_EQ(read("a.json.gz", gzip("[" + array + "]")), plain);
}

TEST_F(FilesTest, DamagedCompressionIsNamed) {
  const std::string text(100'000, 'x');
  const std::string packed = gzip(text);
  const std::string frame = zstd(text);
  const auto error = [&](const std::string& name, const std::string& content) {
    return read(name, content, {.sample_by = SampleBy::kLine}).front();
  };
  EXPECT_THAT(error("a.txt.gz", packed.substr(0, packed.size() / 2)), HasSubstr("the gzip data ends too early"));
  EXPECT_THAT(error("a.txt.gz", "plain text"), HasSubstr("is named .gz but is not gzip data"));
  EXPECT_THAT(error("a.txt.gz", ""), HasSubstr("is named .gz but is not gzip data"));
  EXPECT_THAT(error("a.txt.gz", packed + "tail"), HasSubstr("has other data after the gzip data"));
  std::string wrong = packed;
  wrong[wrong.size() - 6] ^= 1;
  EXPECT_THAT(error("a.txt.gz", wrong), HasSubstr("damaged gzip data: incorrect data check"));
  EXPECT_THAT(error("a.txt.zst", frame.substr(0, frame.size() - 3)), HasSubstr("the zstd data ends too early"));
  EXPECT_THAT(error("a.txt.zst", "plain text"), HasSubstr("damaged zstd data"));
  EXPECT_THAT(error("a.txt.zst", "x"), HasSubstr("is not zstd data"));
  EXPECT_THAT(error("a.parquet.gz", packed), HasSubstr("not a known format"));
}

TEST_F(FilesTest, JsonArraysThatDoNotEnd) {
  for (const char* text : {"[", "[{\"a\": 1}", "[{\"a\": \"", "[{\"a\": \"\\", "[{\"a\": 1},"}) {
    EXPECT_THAT(read("a.json", text).back(), HasSubstr("the array does not end")) << text;
  }
  EXPECT_THAT(read("a.json", "[{\"a\": 1}] x").back(), HasSubstr("text after the array"));
  EXPECT_THAT(read("a.json", "[}]").back(), HasSubstr("a closing bracket has no opening one"));
  EXPECT_THAT(read("a.json", "[ ]"), ElementsAre());
  EXPECT_THAT(read("a.json", "[{\"a\": 1},]").back(), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace hone
