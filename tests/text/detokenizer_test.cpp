#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include "core/files.h"
#include "core/random.h"
#include "core/unicode.h"
#include "support/paths.h"

namespace hone {
namespace {

TEST(Detokenizer, PiecesJoinToTheDecodedText) {
  const Tokenizer tokenizer = Tokenizer::load(test::fixture("text/qwen2"));
  const RandomStream random(1, "detokenizer");
  std::uint64_t index = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenId> ids(random.below(index++, 40));
    for (TokenId& id : ids)
      id = static_cast<TokenId>(random.below(index++, static_cast<std::uint64_t>(tokenizer.vocab_size() + 3)));
    for (const bool skip : {false, true}) {
      Detokenizer detokenizer(tokenizer, skip);
      std::string text;
      for (const TokenId id : ids) {
        const std::string piece = detokenizer.add(id);
        ASSERT_TRUE(is_valid_utf8(piece));
        text += piece;
      }
      EXPECT_EQ(text + detokenizer.flush(), tokenizer.decode(ids, skip));
      EXPECT_EQ(detokenizer.flush(), "");
    }
  }
}

TEST(Detokenizer, WaitsForWholeCharacters) {
  const Tokenizer tokenizer = Tokenizer::load(test::fixture("text/gpt2"));
  // U+1F642 as its four bytes.
  std::vector<TokenId> bytes;
  for (const char* name : {"\xC3\xB0", "\xC4\x81", "\xC4\xBB", "\xC4\xA4"}) {
    const auto id = tokenizer.token_id(name);
    ASSERT_TRUE(id.has_value());
    bytes.push_back(*id);
  }
  std::string expected;
  for (const TokenId id : bytes) expected += tokenizer.token_bytes(id);
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.add(bytes[0]), "");
  EXPECT_EQ(detokenizer.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.add(bytes[0]), "");
  EXPECT_EQ(detokenizer.add(*tokenizer.token_id("a")),
            "\xEF\xBF\xBD"
            "a");
}

}  // namespace
}  // namespace hone
