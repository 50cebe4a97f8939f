// Tests the parts of `hone generate`: overlap with benchmarks, the journal and the filters.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "data/journal.h"
#include "generate/collect.h"
#include "generate/ngrams.h"
#include "support/paths.h"

namespace hone {
namespace {

TEST(Ngrams, overlap_as_the_reference_finds_it) {
  std::istringstream lines(read_file(test::fixture("generate/ngrams.jsonl")));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json row = parse_json(line, "ngrams.jsonl");
    EXPECT_EQ(normalized_words(row["text"].get<std::string>()), row["normalized"].get<std::string>());
    NgramSet ngrams(row["n"].get<std::size_t>());
    ngrams.add(row["benchmark"].get<std::string>());
    EXPECT_EQ(ngrams.overlaps(row["text"].get<std::string>()), row["contaminated"].get<bool>()) << line;
  }
  EXPECT_GE(count, 200u);
}

// The script of open-r1 does not find copies of prompts that are shorter than a run.
TEST(Ngrams, texts_shorter_than_a_run_are_compared_whole) {
  NgramSet ngrams(8);
  ngrams.add("What is 7 + 8?");
  ngrams.add("");
  EXPECT_TRUE(ngrams.overlaps("What is 7 + 8?"));
  EXPECT_TRUE(ngrams.overlaps("  what IS 7\t+ 8?\n"));
  EXPECT_FALSE(ngrams.overlaps("What is 7 + 9?"));
  EXPECT_FALSE(ngrams.overlaps("What is 7 +"));
  EXPECT_FALSE(ngrams.overlaps("Say it at last: What is 7 + 8?"));
  EXPECT_FALSE(ngrams.overlaps(""));
}

TEST(Journal, finds_what_was_appended_and_cuts_what_was_not_finished) {
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "journal.jsonl";
  {
    Journal journal(path, "key");
    EXPECT_EQ(journal.size(), 0u);
    journal.append({{"key", "a"}, {"value", 1}});
    journal.append({{"key", "b"}, {"value", "\xC3("}});
    EXPECT_EQ(journal.read("a")["value"], 1);
  }
  append_file(path, R"({"key": "c", "val)");
  Journal journal(path, "key");
  EXPECT_EQ(journal.size(), 2u);
  EXPECT_FALSE(journal.contains("c"));
  journal.append({{"key", "c"}, {"value", 3}});
  EXPECT_EQ(Journal(path, "key").read("c")["value"], 3);
  EXPECT_EQ(Journal(path, "key").read("a")["value"], 1);
  append_file(path, "{\"other\": 1}\n");
  try {
    (void)Journal(path, "key");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("line 4"), std::string::npos) << error.what();
  }
}

TEST(Journal, keys_differ) {
  EXPECT_EQ(content_key("a").size(), 32u);
  EXPECT_NE(content_key("a"), content_key("b"));
  EXPECT_EQ(content_key("a"), content_key("a"));
}

class Filters : public testing::Test {
 protected:
  Filters() : journal_(folder_.path() / "generations.jsonl", "prompt_hash") {
    options_.require_end = false;
    add("one", {"\\boxed{1}", "\\boxed{2}", "\\boxed{1}", "\\boxed{01}"}, {5, 6, 5, 7},
        {"stop", "stop", "stop", "stop"});
    add("two", {"\\boxed{2}", "\\boxed{2}", "\\boxed{2}", "x"}, {5, 5, 5, 50}, {"stop", "stop", "stop", "length"});
    add("three", {"a", "b", "c", "d"}, {1, 1, 1, 1}, {"stop", "length", "length", "length"});
  }

  // Adds a prompt with its completions. The gold answer is the number of the prompt: 1, 2, 3.
  void add(const std::string& name, const std::vector<std::string>& texts, const std::vector<int>& tokens,
           const std::vector<std::string>& reasons) {
    const Json row = {{"prompt", "What is " + name + "?"}, {"solution", std::to_string(prompts_.size() + 1)}};
    prompts_.push_back({.key = name,
                        .row = row.dump(),
                        .messages = Json::array({{{"role", "user"}, {"content", row["prompt"]}}}).dump()});
    journal_.append(
        {{"prompt_hash", name}, {"generations", texts}, {"completion_tokens", tokens}, {"finish_reasons", reasons}});
  }

  std::vector<Json> collect() {
    counts_ = {};
    collect_data(options_, prompts_, journal_, folder_.path() / "data.jsonl", counts_);
    std::istringstream lines(read_file(folder_.path() / "data.jsonl"));
    std::vector<Json> rows;
    for (std::string line; std::getline(lines, line);) rows.push_back(parse_json(line, "data.jsonl"));
    EXPECT_EQ(counts_.kept, std::ssize(rows));
    return rows;
  }

  test::TemporaryDirectory folder_;
  Journal journal_;
  std::vector<GeneratePrompt> prompts_;
  GenerateOptions options_;
  GenerateCounts counts_;
};

TEST_F(Filters, keep_what_a_reward_verifies) {
  options_.reward_funcs = {"accuracy"};
  const std::vector<Json> rows = collect();
  ASSERT_EQ(rows.size(), 3u);  // one completion of "one" and two of "two" are duplicates
  EXPECT_EQ(
      rows[0]["messages"],
      Json::parse(R"([{"role": "user", "content": "What is one?"}, {"role": "assistant", "content": "\\boxed{1}"}])"));
  EXPECT_FALSE(rows[0].contains("prompt"));
  EXPECT_EQ(rows[0]["solution"], "1");
  EXPECT_EQ(rows[0]["reward"], 1.0);
  EXPECT_EQ(rows[1]["messages"][1]["content"], "\\boxed{01}");
  EXPECT_EQ(rows[2]["prompt_hash"], "two");
  EXPECT_EQ(counts_.completions, 12);
  EXPECT_EQ(counts_.reward, 6);
  EXPECT_EQ(counts_.repeated, 3);
  options_.max_per_prompt = 1;
  EXPECT_EQ(collect().size(), 2u);
}

TEST_F(Filters, keep_prompts_strictly_between_pass_rates) {
  options_.reward_funcs = {"accuracy"};
  options_.output_form = DataForm::kRows;
  EXPECT_EQ(collect().size(), 3u);
  options_.pass_rate_min = 0.1;
  std::vector<Json> rows = collect();  // 0.75, 0.75, 0
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["pass_rate"], 0.75);
  EXPECT_EQ(rows[0]["rewards"]["accuracy"], Json::parse("[1.0, 0.0, 1.0, 1.0]"));
  EXPECT_EQ(rows[0]["generations"].size(), 4u);
  EXPECT_EQ(rows[0]["prompt"], "What is one?");
  EXPECT_EQ(counts_.pass_rate, 1);
  options_.pass_rate_max = 0.75;
  EXPECT_THROW((void)collect(), Error);
  options_.pass_rate_max = 0.8;
  options_.pass_rate_min = -0.1;
  options_.easy_first = true;
  rows = collect();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2]["prompt_hash"], "three");
}

TEST_F(Filters, keep_by_length_end_and_format) {
  options_.require_end = true;
  EXPECT_EQ(collect().size(), 5u);
  EXPECT_EQ(counts_.length, 4);
  options_.min_completion_tokens = 5;
  options_.max_completion_tokens = 6;
  EXPECT_EQ(collect().size(), 3u);
  options_.require_format = true;
  try {
    (void)collect();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("6 by format"), std::string::npos) << error.what();
  }
}

TEST_F(Filters, give_thoughts_that_the_template_opened_back) {
  prompts_[2].opens_thoughts = true;
  EXPECT_EQ(collect().back()["messages"][1]["content"], "<think>\nd");
}

}  // namespace
}  // namespace hone
