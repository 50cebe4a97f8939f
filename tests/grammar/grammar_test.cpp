// Tests of compiled grammars and of the masks of their matchers.
#include "grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/json_value.h"
#include "core/random.h"
#include "core/regex.h"
#include "support/json_schemas.h"
#include "text/bpe_trainer.h"

namespace hone::test {
namespace {

constexpr std::int64_t kVocab = 340;  // logits without a token are at the end

const Tokenizer& grammar_tokenizer() {
  static const Tokenizer tokenizer = [] {
    BpeTrainer trainer(
        {.vocab_size = 320, .special_tokens = {"<|endoftext|>", "<|im_end|>"}, .eos_token = "<|endoftext|>"});
    trainer.add(R"({"name": "naïve", "age": 12} true false null 日本 🙂 <tool_call> "," ": " yes no)");
    return trainer.train();
  }();
  return tokenizer;
}

GrammarCompiler& compiler() {
  static GrammarCompiler one(grammar_tokenizer(), kVocab);
  return one;
}

std::vector<TokenId> allowed_tokens(TokenMatcher& matcher) {
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(mask_words(kVocab)));
  const std::int64_t count = matcher.fill_mask(mask);
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < kVocab; ++token)
    if ((mask[static_cast<std::size_t>(token / 32)] >> (token % 32) & 1U) != 0) tokens.push_back(token);
  EXPECT_EQ(count, std::ssize(tokens));
  return tokens;
}

// A completion whose tokens are drawn evenly from the allowed ones, but the stop token where it is allowed.
std::string drawn_text(const GrammarSpec& spec, std::uint64_t seed, int most = 400) {
  const RandomStream random(seed, "draws");
  const TokenId stop = *grammar_tokenizer().eos_token_id();
  TokenMatcher matcher(compiler().compile(spec), {stop});
  std::vector<TokenId> tokens;
  for (int step = 0; step < most; ++step) {
    const std::vector<TokenId> allowed = allowed_tokens(matcher);
    if (allowed.empty()) break;
    const bool may_end = allowed.front() == stop || std::ranges::find(allowed, stop) != allowed.end();
    EXPECT_EQ(may_end, matcher.may_end());
    const TokenId token = may_end ? stop : allowed[random.below(static_cast<std::uint64_t>(step), allowed.size())];
    EXPECT_TRUE(matcher.accept(token)) << token;
    if (token == stop) return grammar_tokenizer().decode(tokens);
    tokens.push_back(token);
  }
  return "unfinished: " + grammar_tokenizer().decode(tokens);
}

std::string refusal_of(const GrammarSpec& spec) {
  try {
    (void)compiler().compile(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string without_exponents(const std::string& text) {
  std::string rest;
  std::size_t end = 0;
  Regex("[0-9]([eE][+-]?[0-9]+)").for_each_match(text, [&](const RegexMatch& match) {
    const auto begin = static_cast<std::size_t>(match.group.data() - text.data());
    rest.append(text, end, begin - end);
    end = begin + match.group.size();
  });
  return rest.append(text, end);
}

TEST(Grammar, DrawnTextsSatisfyRandomSchemas) {
  int finished = 0;
  for (std::uint64_t seed = 0; seed < 220; ++seed) {
    const Json schema = random_schema(seed);
    const bool strict = seed % 2 == 0;
    const std::string text = drawn_text({GrammarKind::kJsonSchema, schema.dump(), strict}, seed);
    // xgrammar takes the bytes of a surrogate for a character. A text has three U+FFFD in its place.
    if (text.starts_with("unfinished") || text.find("\uFFFD") != std::string::npos) continue;
    ++finished;
    // Properties that a schema does not name may be numbers beyond those of f64, which the parser refuses.
    Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded() && !strict) value = Json::parse(without_exponents(text), nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << schema << "\n" << text;
    if (value.is_discarded()) continue;
    EXPECT_TRUE(satisfies(value, schema, strict)) << schema << "\n" << text;
  }
  EXPECT_GT(finished, 150);
}

bool is_ascii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

TEST(Grammar, DrawnTextsMatchRegularExpressions) {
  for (const char* text : {"[a-c]{2,4}x?", "(foo|bar)+-[0-9]{3}", "\\d{4}-\\d{2}-\\d{2}", "a*b", "[^x\\s]{3}"}) {
    const Regex expression(text);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::string drawn = drawn_text({GrammarKind::kRegex, text}, seed);
      EXPECT_TRUE(drawn.starts_with("unfinished") || text == std::string("[^x\\s]{3}") ||
                  (is_ascii(drawn) && expression.fits(drawn)))
          << text << ": " << drawn;
    }
  }
}

TEST(Grammar, DrawsChoicesRulesAndTags) {
  const std::vector<std::string> choices{"yes", "no\n", "may\"be\\", "日本"};
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_THAT(choices, testing::Contains(drawn_text({GrammarKind::kChoice, Json(choices).dump()}, seed)));
  EXPECT_EQ(drawn_text({GrammarKind::kGrammar, R"(root ::= "a" b "c"
b ::= "x" "y")"},
                       1),
            "axyc");
  EXPECT_EQ(drawn_text({GrammarKind::kGrammar, R"(start: "a" "b")"}, 1), "ab");
  const Json tag{{"type", "structural_tag"},
                 {"format",
                  {{"type", "tag"},
                   {"begin", "<f>"},
                   {"content", {{"type", "json_schema"}, {"json_schema", {{"enum", {5}}}}}},
                   {"end", "</f>"}}}};
  EXPECT_EQ(drawn_text({GrammarKind::kStructuralTag, tag.dump()}, 1), "<f>5</f>");
}

TEST(Grammar, NeverAllowsSpecialOrUnusedTokens) {
  TokenMatcher matcher(compiler().compile({GrammarKind::kRegex, "[^q]*"}), {});
  for (const TokenId token : allowed_tokens(matcher)) {
    EXPECT_LT(token, grammar_tokenizer().vocab_size());
    EXPECT_FALSE(grammar_tokenizer().is_special(token));
  }
}

// A stop token may be an ordinary one, such as a line break: it then ends the text and is never a part of it.
TEST(Grammar, StopTokensOnlyWhereTheTextMayEnd) {
  const TokenId letter = grammar_tokenizer().encode("b").at(0);
  TokenMatcher matcher(compiler().compile({GrammarKind::kRegex, "a[ab]{2}"}), {letter});
  const TokenId a = grammar_tokenizer().encode("a").at(0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(allowed_tokens(matcher), testing::Not(testing::Contains(letter)));
    EXPECT_FALSE(matcher.accept(letter));
    EXPECT_FALSE(matcher.is_finished());
    ASSERT_TRUE(matcher.accept(a));
  }
  EXPECT_THAT(allowed_tokens(matcher), testing::ElementsAre(letter));
  EXPECT_TRUE(matcher.accept(letter));
  EXPECT_TRUE(matcher.is_finished());
  EXPECT_FALSE(matcher.accept(a));
  EXPECT_TRUE(allowed_tokens(matcher).empty());
}

TEST(Grammar, RollsBack) {
  TokenMatcher matcher(compiler().compile({GrammarKind::kRegex, "abc"}), {});
  const std::vector<TokenId> first = allowed_tokens(matcher);
  ASSERT_TRUE(matcher.accept_text("a"));
  ASSERT_TRUE(matcher.accept_text("b"));
  EXPECT_FALSE(matcher.accept_text("x"));
  matcher.roll_back(2);
  EXPECT_EQ(allowed_tokens(matcher), first);
  EXPECT_TRUE(matcher.accept_text("abc"));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_TRUE(allowed_tokens(matcher).empty());
}

TEST(Grammar, RefusesWhatIsWrongInOneLine) {
  const auto schema = [](const char* text) { return refusal_of({GrammarKind::kJsonSchema, text}); };
  const auto regex = [](const std::string& text) { return refusal_of({GrammarKind::kRegex, text}); };
  using testing::HasSubstr;
  EXPECT_THAT(schema("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(schema(R"({"type": "wrong"})"), HasSubstr("Unsupported type"));
  EXPECT_THAT(schema(R"({"properties": {"a": {"not": {}}}})"), HasSubstr("schema.properties.a has \"not\""));
  EXPECT_THAT(schema(R"({"anyOf": [{}], "minimum": 3})"), HasSubstr("next to \"anyOf\""));
  EXPECT_THAT(schema(R"({"type": "number", "multipleOf": 0.3})"), HasSubstr("multipleOf"));
  EXPECT_THAT(schema(R"({"type": "array", "uniqueItems": true})"), HasSubstr("uniqueItems"));
  EXPECT_EQ(schema(R"({"type": "array", "uniqueItems": false})"), "accepted");
  EXPECT_EQ(schema(R"({"properties": {"not": {"type": "null"}}})"), "accepted");
  EXPECT_EQ(schema(R"({"type": "integer", "anyOf": [{"type": "integer", "minimum": 3}]})"), "accepted");
  EXPECT_THAT(schema(R"({"$ref": "#"})"), HasSubstr("no text"));
  EXPECT_THAT(regex("(a"), HasSubstr("not closed"));
  EXPECT_THAT(regex("(?=x)y"), HasSubstr("Lookahead"));
  EXPECT_THAT(regex(std::string("a\0b", 3)), HasSubstr("NUL"));
  EXPECT_THAT(regex("\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(regex(""), HasSubstr("empty"));
  EXPECT_THAT(refusal_of({GrammarKind::kChoice, "[]"}), HasSubstr("no array of strings"));
  EXPECT_THAT(refusal_of({GrammarKind::kChoice, "[1]"}), HasSubstr("choice 0"));
  EXPECT_THAT(refusal_of({GrammarKind::kGrammar, "root ::= foo"}), HasSubstr("foo"));
  EXPECT_THAT(refusal_of({GrammarKind::kStructuralTag, R"({"type": "structural_tag", "format": {"type": "x"}})"}),
              HasSubstr("not recognized"));
  for (const std::string& message : {schema("{"), regex("(a"), regex("[")})
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(Grammar, RefusesWhatWouldTakeTooLong) {
  using testing::HasSubstr;
  const auto regex = [](const std::string& text) { return refusal_of({GrammarKind::kRegex, text}); };
  EXPECT_THAT(regex(std::string(kMostGrammarBytes + 1, 'a')), HasSubstr("bytes, at most"));
  EXPECT_THAT(regex(std::string(100, '(') + "a" + std::string(100, ')')), HasSubstr("nested deeper"));
  EXPECT_THAT(regex("(.?){500}x"), HasSubstr("may be empty"));
  EXPECT_THAT(regex("(a|b*){17}"), HasSubstr("may be empty"));
  EXPECT_THAT(regex("((x{1,30}){1,30}){1,50}"), HasSubstr("nests repetitions"));
  EXPECT_THAT(regex("(a{1000}){1000}a{1000}"), HasSubstr("repetitions"));
  EXPECT_THAT(refusal_of({GrammarKind::kGrammar, "root ::= a{500} \"x\"\na ::= [x]?"}), HasSubstr("may be empty"));
  std::string deep = "1";
  for (int i = 0; i < 100; ++i) deep = "[" + deep + "]";
  EXPECT_THAT(refusal_of({GrammarKind::kJsonSchema, R"({"const": )" + deep + "}"}), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal_of({GrammarKind::kJsonSchema,
                          R"({"type": "array", "minItems": 2000, "items": {"type": "array", "minItems": 2000}})"}),
              HasSubstr("repetitions"));
  EXPECT_EQ(regex("([a-z]{1,30} ){1,50}"), "accepted");
  EXPECT_EQ(regex("\\(\\d{3}\\)( \\d{2,4})?"), "accepted");
  EXPECT_EQ(refusal_of({GrammarKind::kJsonSchema, R"({"type": "string", "maxLength": 100000})"}), "accepted");
}

TEST(Grammar, KeepsTheGrammarsThatWereUsedLast) {
  GrammarCompiler small(grammar_tokenizer(), kVocab, {.cache_bytes = 1});
  const GrammarSpec first{GrammarKind::kRegex, "a+"};
  const auto grammar = small.compile(first);
  EXPECT_EQ(small.compile(first), grammar);
  (void)small.compile({GrammarKind::kRegex, "b+"});
  EXPECT_NE(small.compile(first), grammar);
  EXPECT_NE(compiler().compile(first), compiler().compile({GrammarKind::kRegex, "a*"}));
}

// A compilation that takes too long is refused, but its result is there later.
TEST(Grammar, RefusesToWaitForLong) {
  GrammarCompiler hasty(grammar_tokenizer(), kVocab, {.wait = std::chrono::milliseconds(0)});
  const GrammarSpec spec{GrammarKind::kJsonSchema, random_schema(3).dump()};
  EXPECT_THAT([&] { (void)hasty.compile(spec); }, testing::ThrowsMessage<Error>(testing::HasSubstr("longer than 0 s")));
  std::shared_ptr<const Grammar> grammar;
  while (grammar == nullptr) {
    try {
      grammar = hasty.compile(spec);
    } catch (const Error&) {
      std::this_thread::yield();
    }
  }
  EXPECT_GT(grammar->bytes(), 0U);
}

TEST(Grammar, ThreadsMayCompileTogether) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([i] {
      for (int n = 0; n < 20; ++n)
        (void)compiler().compile({GrammarKind::kRegex, text_of("x", (n + i) % 12, "[0-9]*")});
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hone::test
