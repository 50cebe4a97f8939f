#include "text/bpe_trainer.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/paths.h"

namespace hone {
namespace {

using Kind = BpeTrainerOptions::Kind;

std::vector<std::string> corpus() { return split(read_file(test::fixture("text/corpus.txt")), '\x1e'); }

void expect_reference_result(const char* name, Kind kind) {
  const Json expected = read_json(test::fixture(std::string("text/train.") + name + ".json"));
  BpeTrainer trainer({.kind = kind,
                      .vocab_size = expected["vocab_size"].get<std::int64_t>(),
                      .min_frequency = expected.value("min_frequency", std::int64_t{0}),
                      .special_tokens = {"<|a|>", "<|b|>"}});
  for (const std::string& document : corpus()) trainer.add(document);
  const test::TemporaryDirectory folder;
  trainer.train().save(folder.path());
  const Json model = read_json(folder.path() / "tokenizer.json")["model"];
  std::vector<std::string> vocabulary;
  for (const auto& [token, id] : model["vocab"].items()) {
    EXPECT_EQ(id, vocabulary.size());
    vocabulary.push_back(token);
  }
  EXPECT_EQ(vocabulary, expected["vocab"].get<std::vector<std::string>>());
  ASSERT_EQ(model["merges"].size(), expected["merges"].size());
  for (std::size_t i = 0; i < model["merges"].size(); ++i) {
    const Json& pair = expected["merges"][i];
    EXPECT_EQ(model["merges"][i], pair[0].get<std::string>() + " " + pair[1].get<std::string>()) << i;
  }
}

TEST(BpeTrainer, EqualsTheReferenceOnGpt2Words) { expect_reference_result("gpt2", Kind::kGpt2); }
TEST(BpeTrainer, EqualsTheReferenceWithAMinimumFrequency) { expect_reference_result("gpt2_frequent", Kind::kGpt2); }
TEST(BpeTrainer, EqualsTheReferenceOnQwen2Words) { expect_reference_result("qwen2", Kind::kQwen2); }

TEST(BpeTrainer, ReadsBackWhatItWasTrainedOn) {
  BpeTrainer trainer({.vocab_size = 600, .special_tokens = {"<|end|>"}, .eos_token = "<|end|>"});
  for (const std::string& document : corpus()) trainer.add(document);
  const Tokenizer tokenizer = trainer.train();
  EXPECT_EQ(tokenizer.vocab_size(), 600);
  EXPECT_EQ(tokenizer.eos_token_id(), 0);
  for (const std::string& document : corpus()) EXPECT_EQ(tokenizer.decode(tokenizer.encode(document)), document);
}

TEST(BpeTrainer, CharactersAreNumberedByCodePoint) {
  BpeTrainer trainer({.kind = Kind::kCharacters, .special_tokens = {"<|end|>"}, .eos_token = "<|end|>"});
  trainer.add("hello\n");
  trainer.add("wörld");
  const Tokenizer trained = trainer.train();
  const test::TemporaryDirectory folder;
  trained.save(folder.path());
  for (const Tokenizer& tokenizer : {trained, Tokenizer::load(folder.path())}) {
    // \n d e h l o r w ö <|end|>
    EXPECT_EQ(tokenizer.vocab_size(), 10);
    EXPECT_EQ(tokenizer.encode("lö\n<|end|>"), (std::vector<TokenId>{4, 8, 0, 9}));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("hellowörld")), "hellowörld");
    EXPECT_EQ(tokenizer.eos_token_id(), 9);
    EXPECT_THROW((void)tokenizer.encode("x"), Error);
  }
}

TEST(BpeTrainer, ChecksItsOptions) {
  EXPECT_THROW(BpeTrainer({.vocab_size = 255}), Error);
  EXPECT_THROW(BpeTrainer({.special_tokens = {"<a>", "<a>"}}), Error);
  EXPECT_THROW(BpeTrainer({.special_tokens = {"a"}}), Error);
  EXPECT_THROW(BpeTrainer({.special_tokens = {""}}), Error);
  EXPECT_THROW(BpeTrainer({.eos_token = "<a>"}), Error);
  EXPECT_THROW((void)BpeTrainer({}).train(), Error);
}

}  // namespace
}  // namespace hone
