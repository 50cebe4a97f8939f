#include "text/ranks.h"

#include <gtest/gtest.h>

#include "cases.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/random.h"
#include "core/unicode.h"
#include "support/paths.h"
#include "text/byte_alphabet.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace hone {
namespace {

// The tokens a, b, c, ab, abc, and the bytes of U+00E9.
constexpr std::string_view kRanks = "YQ== 0\nYg== 1\nYw== 2\nYWI= 3\nYWJj 4\n\nww== 5\r\nqQ== 6\n";
constexpr std::string_view kConfig =
    R"({"pat_str": "\\p{L}+|[^\\p{L}]+", "eos_token": "<end>", "added_tokens_decoder": {"9": {"content": "<end>", "special": true}}})";

std::string ranks_error(std::string_view ranks, std::string_view config = kConfig) {
  try {
    (void)Tokenizer::from_ranks(ranks, config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Ranks, EncodeByTheRankOfWhatIsMade) {
  const Tokenizer tokenizer = Tokenizer::from_ranks(kRanks, kConfig);
  EXPECT_EQ(tokenizer.encode("abcab\u00e9ba<end>"), (std::vector<TokenId>{4, 3, 5, 6, 1, 0, 9}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{4, 5, 6, 5, 9}), "abc\u00e9\uFFFD<end>");
  EXPECT_EQ(tokenizer.vocab_size(), 10);
  EXPECT_EQ(tokenizer.eos_token_id(), 9);
  EXPECT_THROW((void)tokenizer.encode("abd"), Error);
}

TEST(Ranks, AreFoundInAFolderAndSavedAsJson) {
  const test::TemporaryDirectory folder, saved;
  write_file(folder.path() / "tokenizer_config.json", kConfig);
  EXPECT_THROW((void)Tokenizer::load(folder.path()), Error);
  write_file(folder.path() / "tokenizer.model", kRanks);
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  tokenizer.save(saved.path());
  EXPECT_TRUE(std::filesystem::exists(saved.path() / "tokenizer.json"));
  EXPECT_EQ(Tokenizer::load(saved.path()).encode("abcab<end>"), tokenizer.encode("abcab<end>"));
  write_file(folder.path() / "a.tiktoken", kRanks);
  EXPECT_EQ(find_ranks(folder.path()).filename(), "a.tiktoken");
  write_file(folder.path() / "b.tiktoken", kRanks);
  EXPECT_THROW((void)Tokenizer::load(folder.path()), Error);
}

TEST(Ranks, ErrorsSayWhatIsWrong) {
  EXPECT_THAT(ranks_error(kRanks, ""),
              testing::AllOf(testing::HasSubstr("has 7 ranks"), testing::HasSubstr("Llama 3 128000"),
                             testing::HasSubstr("pat_str")));
  EXPECT_THAT(ranks_error("YQ== 0\nYg== x\n"), testing::HasSubstr("line 2 "));
  EXPECT_THAT(ranks_error("YQ== 0\nYg==\n"), testing::HasSubstr("line 2 "));
  EXPECT_THAT(ranks_error("Y?== 0\n"), testing::HasSubstr("line 1 "));
  EXPECT_THAT(ranks_error("YQ== -1\n"), testing::HasSubstr("line 1 "));
  EXPECT_THAT(ranks_error("YQ== 99999999\n"), testing::HasSubstr("line 1 "));
  EXPECT_THAT(ranks_error("YQ== 0\nYQ== 1\n"), testing::HasSubstr("listed twice"));
  EXPECT_THAT(ranks_error("YQ== 0\nYg== 0\n"), testing::HasSubstr("same id 0"));
  EXPECT_THAT(ranks_error(""), testing::HasSubstr("has no ranks"));
  EXPECT_THAT(ranks_error(std::string("\n\x0E\n\x05<unk>\x15\0\0\0", 12)), testing::HasSubstr("SentencePiece"));
}

// Returns the pieces of a pre-tokenizer. An additional step that matches nothing disables the hand-written scanner, so
// the patterns themselves are used.
std::vector<std::string> pieces_of(Json steps, std::string_view text, bool by_patterns) {
  if (by_patterns) {
    steps.push_back(Json{{"type", "Split"}, {"pattern", Json{{"String", "\U0010FFFE"}}}, {"behavior", "Isolated"}});
  }
  const PreTokenizer pre_tokenizer(Json{{"type", "Sequence"}, {"pretokenizers", steps}}, "test");
  Pieces pieces;
  pre_tokenizer.split(text, pieces, true);
  return {pieces.views.begin(), pieces.views.end()};
}

TEST(WordScanner, CutsAsThePatternsDo) {
  const RandomStream random(5, "scanner");
  std::uint64_t index = 0;
  const auto draw = [&](std::uint64_t below) { return random.below(index++, below); };
  constexpr char32_t kFirst[] = {0x20, 0x20, 0x41, 0x00, 0x80, 0x300, 0x600, 0x2000, 0x3000, 0x4E00, 0x2070, 0x100};
  constexpr std::string_view kPieces[] = {" ",   "  ",     "\n",   "\r\n",   "\t",     "'s",     "'LL",    "'\u017F",
                                          "'re", "abc",    "E",    "12345",  "7",      "!",      "...\n",  "(x",
                                          "'",   "\u00A0", "\x01", "\u0301", "\u4E2D", "\u30AB", "\u00BD", "#a"};
  for (const char* name : {"gpt2", "qwen2", "llama3", "qwen35", "deepseek"}) {
    const Json file = read_json(test::fixture(std::string("text/") + name + "/tokenizer.json"));
    Json steps =
        file["pre_tokenizer"].contains("pretokenizers") ? file["pre_tokenizer"]["pretokenizers"] : Json::array();
    if (steps.empty()) {
      steps.push_back(Json{{"type", "Split"}, {"pattern", Json{{"Regex", kGpt2Pattern}}}, {"behavior", "Isolated"}});
    } else {
      steps.erase(steps.size() - 1);  // ByteLevel, which does not split any further
    }
    for (int round = 0; round < 1500; ++round) {
      std::string text;
      for (std::uint64_t i = 0, count = draw(14); i < count; ++i) {
        if (draw(2) == 0) {
          text += kPieces[draw(std::size(kPieces))];
        } else {
          append_utf8(text, kFirst[draw(std::size(kFirst))] + static_cast<char32_t>(draw(0x60)));
        }
      }
      ASSERT_EQ(pieces_of(steps, text, false), pieces_of(steps, text, true))
          << name << ": " << testing::PrintToString(text);
    }
  }
}

}  // namespace
}  // namespace hone
