#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "cases.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "support/paths.h"

namespace hone {
namespace {

TEST(Tokenizer, LeadingTokensAreThoseOfThePostProcessor) {
  const Json cases = read_json(test::fixture("text/leading.json"));
  ASSERT_EQ(cases.size(), 7u);
  for (const auto& [name, one] : cases.items()) {
    const Tokenizer tokenizer = Tokenizer::from_json(one["tokenizer"].dump());
    EXPECT_EQ(tokenizer.leading_tokens(), one["leading"].get<std::vector<TokenId>>()) << name;
    EXPECT_EQ(tokenizer.encode("ab"), (std::vector<TokenId>{0, 1})) << name;
  }
}

TEST(Tokenizer, ABrokenPostProcessorIsNamed) {
  Json file = read_json(test::fixture("text/leading.json"))["template"]["tokenizer"];
  const auto error_with = [&](const char* pointer, const Json& value) -> std::string {
    Json broken = file;
    broken["post_processor"][Json::json_pointer(pointer)] = value;
    try {
      (void)Tokenizer::from_json(broken.dump());
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_with("/special_tokens", Json::object()),
            "tokenizer.json: the post_processor adds <s> to a text, but lists no ids for it");
  EXPECT_EQ(error_with("/special_tokens/<s>/ids", {"x"}), "tokenizer.json: post_processor: an id of <s> is \"x\"");
  EXPECT_EQ(error_with("/special_tokens/<s>/ids", {99}), "tokenizer.json: the post_processor's id 99 is not a token");
  EXPECT_EQ(error_with("/type", 3), "tokenizer.json: post_processor has no type");
}

class ReferenceTokenizer : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static Tokenizer load() { return Tokenizer::load(test::fixture(std::string("text/") + GetParam())); }
  [[nodiscard]] static Json cases() {
    return read_json(test::fixture(std::string("text/") + GetParam() + ".cases.json"));
  }
};

TEST_P(ReferenceTokenizer, EncodesAsTheReference) {
  const Tokenizer tokenizer = load();
  const Json all = cases();
  ASSERT_GT(all["encode"].size(), 100U);
  for (const Json& one : all["encode"]) {
    const std::string text = test::from_base64(one["text"].get<std::string>());
    const auto ids = tokenizer.encode(text);
    EXPECT_EQ(ids, one["ids"].get<std::vector<TokenId>>()) << testing::PrintToString(text);
    EXPECT_EQ(tokenizer.decode(ids), one["decoded"].get<std::string>());
  }
}

TEST_P(ReferenceTokenizer, DecodesAsTheReference) {
  const Tokenizer tokenizer = load();
  const Json all = cases();
  for (const Json& one : all["decode"]) {
    const auto ids = one["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer.decode(ids), one["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer.decode(ids, true), one["without_special"].get<std::string>());
  }
}

TEST_P(ReferenceTokenizer, IsTheSameAfterSaving) {
  const test::TemporaryDirectory folder;
  load().save(folder.path());
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  const Json all = cases();
  for (const Json& one : all["encode"]) {
    EXPECT_EQ(tokenizer.encode(test::from_base64(one["text"].get<std::string>())),
              one["ids"].get<std::vector<TokenId>>());
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ReferenceTokenizer,
                         testing::Values("gpt2", "gpt2_prefix", "qwen2", "llama3", "qwen35", "o200k", "deepseek",
                                         "digits", "removed", "added", "llama2", "metaspace", "folded"),
                         [](const auto& test) { return std::string(test.param); });

// The parts of a complete tokenizer.json: a, b, ab and one special token.
Json small_file() {
  return Json::parse(R"({"added_tokens": [{"id": 3, "content": "<end>", "special": true, "normalized": false}],
    "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

std::string error_of(const Json& file) {
  try {
    (void)Tokenizer::from_json(file.dump());
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Tokenizer, EncodesWithASmallFile) {
  const Tokenizer tokenizer = Tokenizer::from_json(small_file().dump());
  EXPECT_EQ(tokenizer.encode("abba<end>"), (std::vector<TokenId>{2, 1, 0, 3}));
  EXPECT_EQ(tokenizer.vocab_size(), 4);
  EXPECT_TRUE(tokenizer.is_special(3));
  EXPECT_FALSE(tokenizer.is_special(2));
  EXPECT_EQ(tokenizer.token_bytes(2), "ab");
  EXPECT_EQ(tokenizer.token_bytes(99), "");
  EXPECT_EQ(tokenizer.token_id("<end>"), 3);
  EXPECT_EQ(tokenizer.token_id("zz"), std::nullopt);
  EXPECT_EQ(tokenizer.eos_token_id(), std::nullopt);
}

TEST(Tokenizer, NamesWhatItDoesNotKnow) {
  Json file = small_file();
  file["normalizer"] = Json{{"type", "BertNormalizer"}};
  EXPECT_THAT(error_of(file), testing::HasSubstr("normalizer BertNormalizer"));
  file = small_file();
  file["pre_tokenizer"] = Json{{"type", "UnicodeScripts"}};
  EXPECT_THAT(error_of(file), testing::HasSubstr("pre_tokenizer UnicodeScripts"));
  file = small_file();
  file["model"]["type"] = "Unigram";
  EXPECT_THAT(error_of(file), testing::HasSubstr("Unigram"));
  file = small_file();
  file["decoder"] = nullptr;
  EXPECT_THAT(error_of(file), testing::HasSubstr("decoder"));
  file = small_file();
  file["model"]["merges"] = Json::array({"a c"});
  EXPECT_THAT(error_of(file), testing::HasSubstr("merge 0 (a c)"));
  file = small_file();
  file["model"]["vocab"]["c"] = 1;
  EXPECT_THAT(error_of(file), testing::HasSubstr("same id 1"));
  file = small_file();
  file["model"]["vocab"]["c"] = Json::array();
  EXPECT_THAT(error_of(file), testing::HasSubstr("token c"));
  file = small_file();
  file["pre_tokenizer"] = Json{{"type", "Split"}, {"pattern", Json{{"Regex", "a(?<=b)"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(error_of(file), testing::HasSubstr("(?<="));
  file = small_file();
  file["model"]["vocab"]["c"] = kMostTokens;
  EXPECT_THAT(error_of(file), testing::HasSubstr("token c has the id"));
}

TEST(Tokenizer, PatternThatBacktracksWithoutEndIsAnError) {
  Json file = small_file();
  file["pre_tokenizer"] =
      Json{{"type", "Split"}, {"pattern", Json{{"Regex", "a(?=.*.*.*.*b)|."}}}, {"behavior", "Isolated"}};
  const Tokenizer tokenizer = Tokenizer::from_json(file.dump());
  EXPECT_EQ(tokenizer.encode("aab").size(), 3);
  EXPECT_THROW((void)tokenizer.encode(std::string(3000, 'a')), Error);
}

TEST(Tokenizer, TextOutsideTheVocabularyIsAnError) {
  const Tokenizer tokenizer = Tokenizer::from_json(small_file().dump());
  EXPECT_THROW((void)tokenizer.encode("abc"), Error);
}

TEST(Tokenizer, BrokenFilesAreErrors) {
  const std::string whole = small_file().dump();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW((void)Tokenizer::from_json(whole.substr(0, size)), Error) << size;
  }
  EXPECT_THROW((void)Tokenizer::from_json(std::string(100'000, '[')), Error);
  EXPECT_THROW((void)Tokenizer::from_json("{\"model\": 3}"), Error);
  EXPECT_THROW((void)Tokenizer::from_json("{\"model\": {\"dropout\": 1e999}}"), Error);
  EXPECT_THROW((void)Tokenizer::load("/nonexistent"), Error);
}

TEST(Tokenizer, ReadsTheConfig) {
  const Tokenizer tokenizer = Tokenizer::from_json(
      small_file().dump(),
      R"({"eos_token": {"content": "<end>"}, "bos_token": "<new>", "pad_token": null, "chat_template": "hello"})");
  EXPECT_EQ(tokenizer.eos_token_id(), 3);
  EXPECT_EQ(tokenizer.bos_token_id(), 4);  // only the config names it, so it is added, as in transformers
  EXPECT_EQ(tokenizer.pad_token_id(), std::nullopt);
  EXPECT_EQ(tokenizer.chat_template(), "hello");
  EXPECT_EQ(tokenizer.encode("a<new>"), (std::vector<TokenId>{0, 4}));
}

TEST(Tokenizer, AddsTokensAndSavesThem) {
  Tokenizer tokenizer = Tokenizer::from_json(small_file().dump());
  const Tokenizer before = tokenizer;
  tokenizer.add_special_tokens(std::vector<std::string>{"<|im_start|>", "<end>", "<|im_end|>"});
  tokenizer.set_eos_token("<|im_end|>");
  tokenizer.set_chat_template("{{ messages }}");
  EXPECT_THROW(tokenizer.set_eos_token("<nothing>"), Error);
  EXPECT_EQ(before.vocab_size(), 4);
  const test::TemporaryDirectory folder;
  tokenizer.save(folder.path());
  for (const Tokenizer& one : {tokenizer, Tokenizer::load(folder.path())}) {
    EXPECT_EQ(one.vocab_size(), 6);
    EXPECT_EQ(one.encode("<|im_start|>ab<|im_end|>"), (std::vector<TokenId>{4, 2, 5}));
    EXPECT_EQ(one.eos_token_id(), 5);
    EXPECT_EQ(one.chat_template(), "{{ messages }}");
    EXPECT_EQ(one.decode(std::vector<TokenId>{4, 2, 5}, true), "ab");
  }
}

TEST(Tokenizer, EncodesOnManyThreads) {
  const Tokenizer tokenizer = Tokenizer::load(test::fixture("text/qwen2"));
  const std::string text = read_file(test::fixture("text/corpus.txt"));
  const auto expected = tokenizer.encode(text);
  std::vector<std::vector<TokenId>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = tokenizer.encode(text); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace hone
