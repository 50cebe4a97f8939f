#include "data/token_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/json_value.h"
#include "data/cache_entry.h"
#include "data/loader.h"
#include "data/packing.h"
#include "data/split.h"
#include "support/paths.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class TokenCacheTest : public testing::Test {
 protected:
  TokenCacheTest() { write_rows(100, "text"); }

  void write_rows(int count, const std::string& word) {
    std::string content;
    for (int i = 0; i < count; ++i) {
      content +=
          Json{{"prompt", word + " " + std::to_string(i)}, {"completion", std::string(1 + i % 7, 'x')}}.dump() + "\n";
    }
    write_file(data, content + "{\"prompt\": 3}\n");
  }

  ExampleSet encode(const TokenCache& other) {
    return other.examples(Source(data, {}), tokenizer, ChatTemplate(chat_template), options, report);
  }
  ExampleSet encode() { return encode(cache); }
  PromptSet prompts() {
    return cache.prompts(Source(data, {}), tokenizer, ChatTemplate(chat_template), prompt_options, report);
  }
  // Returns the examples encoded without a cache.
  ExampleSet truth() {
    EncodingReport own;
    return encode_examples(Source(data, {}), tokenizer, ChatTemplate(chat_template), options, own);
  }
  [[nodiscard]] std::vector<std::string> entries() const {
    return fs::exists(cache_folder) ? list_folder(cache_folder) : std::vector<std::string>();
  }
  [[nodiscard]] fs::path entry() const { return cache_folder / entries().at(0); }
  // Returns true if a call encodes: it then creates an entry, whereas a call that finds one creates none.
  bool encodes_anew() {
    const std::size_t before = entries().size();
    expect_equal(encode(), truth());
    return entries().size() > before;
  }
  static void expect_equal(const ExampleSet& a, const ExampleSet& b) {
    EXPECT_TRUE(std::ranges::equal(a.tokens(), b.tokens()));
    EXPECT_TRUE(std::ranges::equal(a.is_target(), b.is_target()));
    EXPECT_TRUE(std::ranges::equal(a.offsets(), b.offsets()));
  }

  test::TemporaryDirectory folder;
  const fs::path data = folder.path() / "rows.jsonl";
  const fs::path cache_folder = folder.path() / "cache";
  TokenCache cache{cache_folder, true};
  Tokenizer tokenizer = Tokenizer::load(test::fixture("data/tokenizer"));
  std::string chat_template = tokenizer.chat_template();
  EncodeOptions options;
  PromptOptions prompt_options{.columns = {.prompt_column = "prompt"}};
  EncodingReport report;
};

std::vector<HostBatch> batches_of(const ExampleSet& set) {
  const auto loader =
      make_row_loader(set, pack(set, all_examples(set.size()), Packing::kBfd, 64), {.rows_per_batch = 2, .seed = 3});
  std::vector<HostBatch> batches;
  for (std::int64_t i = 0; i < 2 * loader->batches_per_epoch(); ++i) batches.push_back(loader->next());
  return batches;
}

TEST_F(TokenCacheTest, SecondStartHasTheSameBatchesAndReport) {
  options.max_length = 12;
  const std::vector<HostBatch> first = batches_of(encode());
  const EncodingReport written = report;
  EXPECT_EQ(written.rows, 101);
  EXPECT_EQ(written.bad.count(), 1);
  EXPECT_EQ(batches_of(encode()), first);
  EXPECT_EQ(batches_of(truth()), first);
  EXPECT_EQ(entries().size(), 1u);
  EXPECT_EQ(report.rows, written.rows);
  EXPECT_EQ(report.examples, written.examples);
  EXPECT_EQ(report.tokens, written.tokens);
  EXPECT_EQ(report.target_tokens, written.target_tokens);
  EXPECT_EQ(report.cut, written.cut);
  EXPECT_EQ(report.bad.describe(report.rows), written.bad.describe(written.rows));
}

TEST_F(TokenCacheTest, SecondStartEncodesNothing) {
  const ExampleSet set = encode();
  // An entry that encoding would not produce: a caller that gets it has encoded nothing.
  const std::string key = entry().stem();
  const std::optional<CacheEntry> kept = read_cache_entry(entry(), key);
  ASSERT_TRUE(kept);
  std::vector<TokenId> reversed(set.tokens().rbegin(), set.tokens().rend());
  std::vector<std::span<const std::byte>> sections = kept->sections;
  sections[0] = std::as_bytes(std::span(reversed));
  write_cache_entry(entry(), key, kept->head, sections);
  EXPECT_TRUE(std::ranges::equal(encode().tokens(), reversed));
  expect_equal(encode(TokenCache()), truth());
}

TEST_F(TokenCacheTest, PromptsAreKeptToo) {
  const PromptSet first = prompts();
  ASSERT_EQ(first.size(), 100);
  ASSERT_EQ(entries().size(), 1u);
  const PromptSet second = prompts();
  EXPECT_EQ(entries().size(), 1u);
  ASSERT_EQ(second.size(), first.size());
  EXPECT_EQ(second.longest(), first.longest());
  for (std::int64_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(first.tokens(i), second.tokens(i)));
    EXPECT_EQ(first.row(i), second.row(i));
    EXPECT_EQ(first.prefill(i), second.prefill(i));
  }
  prompt_options.max_prompt_length = 3;
  EXPECT_LE(prompts().longest(), 3);
  EXPECT_EQ(entries().size(), 2u);
}

TEST_F(TokenCacheTest, WhateverTokensDependOnMisses) {
  EXPECT_TRUE(encodes_anew());
  EXPECT_FALSE(encodes_anew());
  write_rows(100, "next");  // same size
  EXPECT_TRUE(encodes_anew());
  options.max_length = 9;
  EXPECT_TRUE(encodes_anew());
  options.loss = LossOn::kAll;
  EXPECT_TRUE(encodes_anew());
  options.eos_optional = true;
  EXPECT_TRUE(encodes_anew());
  options.columns.system_prompt = "Be brief.";
  EXPECT_TRUE(encodes_anew());
  options.columns.text_field = "content";
  EXPECT_TRUE(encodes_anew());
  options.columns.prompt_column = "prompt";
  EXPECT_TRUE(encodes_anew());
  chat_template += " ";
  EXPECT_TRUE(encodes_anew());
  const std::vector<std::string> added{"text 1"};
  tokenizer.add_special_tokens(added);
  EXPECT_TRUE(encodes_anew());
  tokenizer.set_eos_token("text 1");
  EXPECT_TRUE(encodes_anew());
  EXPECT_FALSE(encodes_anew());
}

TEST_F(TokenCacheTest, RowsColumnsAndOrderMiss) {
  const auto size_of = [&](SourcePart part, std::vector<std::uint32_t> order) {
    part.files = {data};
    const Source source("rows", {std::move(part)}, {}, std::move(order));
    const ExampleSet set = cache.examples(source, tokenizer, ChatTemplate(chat_template), options, report);
    EncodingReport own;
    expect_equal(set, encode_examples(source, tokenizer, ChatTemplate(chat_template), options, own));
    return entries().size();
  };
  EXPECT_EQ(size_of({}, {}), 1u);
  EXPECT_EQ(size_of({.files = {}, .columns = {"prompt", "completion"}, .kept = {}}, {}), 2u);
  std::vector<bool> kept(101, true);
  kept[5] = false;
  EXPECT_EQ(size_of({.files = {}, .columns = {}, .kept = kept}, {}), 3u);
  EXPECT_EQ(size_of({}, {1, 0, 2}), 4u);
  EXPECT_EQ(size_of({}, {0, 1, 2}), 5u);
  EXPECT_EQ(size_of({}, {0, 1, 2}), 5u);
}

TEST_F(TokenCacheTest, DamagedEntriesAreMadeAnew) {
  (void)encode();
  const std::string good = read_file(entry());
  const auto expect_mended = [&](const std::string& damaged) {
    write_file(entry(), damaged);
    expect_equal(encode(), truth());
    EXPECT_EQ(read_file(entry()), good);
    EXPECT_EQ(entries().size(), 1u);
  };
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{10}, std::size_t{100}, good.size() / 2, good.size() - 64}) {
    expect_mended(good.substr(0, size));
  }
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, std::size_t{40}, good.size() / 2}) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    expect_mended(damaged);
  }
}

TEST_F(TokenCacheTest, SeveralProcessesMayWriteAtOnce) {
  const ExampleSet expected = truth();
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool right = true;
      for (int round = 0; round < 20; ++round) {
        std::error_code ignored;
        if (round % 3 == 2) fs::remove_all(cache_folder, ignored);  // even the whole folder
        right = right && std::ranges::equal(encode().tokens(), expected.tokens());
      }
      ::_exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  expect_equal(encode(), expected);
  EXPECT_EQ(entries().size(), 1u) << "nothing unfinished is left";
}

TEST_F(TokenCacheTest, WhereNothingCanBeKeptItIsEncodedStill) {
  write_file(cache_folder, "a file");
  expect_equal(encode(), truth());
  EXPECT_EQ(read_file(cache_folder), "a file");
  const fs::path other = folder.path() / "other";
  expect_equal(encode(TokenCache(other, false)), truth());
  EXPECT_FALSE(fs::exists(other));
}

TEST_F(TokenCacheTest, EntriesThatNobodyReadsGo) {
  (void)encode();
  const fs::path old = entry();
  fs::create_directory(cache_folder / "new-killed");
  for (const fs::path& path : {old, cache_folder / "new-killed"}) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(24 * 40));
  }
  options.max_length = 8;
  (void)encode();
  EXPECT_EQ(entries().size(), 1u);
  EXPECT_FALSE(fs::exists(old));
}

}  // namespace
}  // namespace hone
