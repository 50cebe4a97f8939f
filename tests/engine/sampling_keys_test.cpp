// Tests the keys of commands that draw tokens.
#include "engine/sampling_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/error.h"

namespace hone {
namespace {

using ::testing::HasSubstr;

SamplingKeys keys_of(const std::vector<std::string>& arguments) {
  SamplingKeys keys;
  OptionInput input;
  read_option_flags(OptionTable(keys), arguments, {}, input);
  return keys;
}

std::string refusal_of(const std::vector<std::string>& arguments) {
  try {
    (void)keys_of(arguments).params(1, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SamplingKeys, ReachTheRequest) {
  const SamplingKeys keys =
      keys_of({"--repetition_penalty=1.5", "--frequency_penalty=0.5", "--presence_penalty=-2",
               "--logit_bias={7: -100, 3: 2.5}", "--allowed_token_ids=[3, 7]", "--banned_token_ids=[9]"});
  const SamplingParams sampling = keys.params(8, {2});
  EXPECT_EQ(sampling.repetition_penalty, 1.5);
  EXPECT_EQ(sampling.frequency_penalty, 0.5);
  EXPECT_EQ(sampling.presence_penalty, -2);
  EXPECT_EQ(sampling.logit_bias, (std::map<TokenId, double>{{3, 2.5}, {7, -100}}));
  EXPECT_EQ(sampling.allowed_token_ids, (std::vector<TokenId>{3, 7}));
  EXPECT_EQ(sampling.banned_token_ids, (std::vector<TokenId>{9}));
  EXPECT_EQ(sampling.max_tokens, 8);
  EXPECT_EQ(sampling.stop_token_ids, (std::vector<TokenId>{2}));
  EXPECT_EQ(logit_adjustments(sampling), (Json{{"repetition_penalty", 1.5},
                                               {"frequency_penalty", 0.5},
                                               {"presence_penalty", -2.0},
                                               {"logit_bias", {{"3", 2.5}, {"7", -100.0}}},
                                               {"allowed_token_ids", {3, 7}},
                                               {"banned_token_ids", {9}}}));
}

TEST(SamplingKeys, AdjustLogitsOnlyIfOneIsSet) {
  EXPECT_FALSE(SamplingKeys().adjusts_logits());
  const Json adjustments = logit_adjustments(SamplingKeys().params(1, {}));
  for (const auto& [name, value] : adjustments.items()) {
    EXPECT_TRUE(value.is_null()) << name;
  }
  for (const char* argument : {"--repetition_penalty=1.1", "--frequency_penalty=0.1", "--presence_penalty=0.1",
                               "--logit_bias={0: 1}", "--allowed_token_ids=[0]", "--banned_token_ids=[0]"}) {
    EXPECT_TRUE(keys_of({argument}).adjusts_logits()) << argument;
  }
}

TEST(SamplingKeys, RefuseWhatTheyCannotRead) {
  EXPECT_THAT(refusal_of({"--logit_bias=[1, 2]"}), HasSubstr("expected a map from token ids to numbers"));
  EXPECT_THAT(refusal_of({"--logit_bias={the: 1}"}), HasSubstr("logit_bias: 'the' is not a token id"));
  EXPECT_THAT(refusal_of({"--logit_bias={-1: 1}"}), HasSubstr("logit_bias: '-1' is not a token id"));
  EXPECT_THAT(refusal_of({"--logit_bias={4294967296: 1}"}), HasSubstr("is not a token id"));
  EXPECT_THAT(refusal_of({"--logit_bias={1: 101}"}), HasSubstr("of token 1 is '101', expected a number from -100"));
  EXPECT_THAT(refusal_of({"--logit_bias={1: nan}"}), HasSubstr("of token 1 is 'nan'"));
  EXPECT_THAT(refusal_of({"--logit_bias={1: [2]}"}), HasSubstr("of token 1 is [2]"));
  EXPECT_THAT(refusal_of({"--logit_bias={1: 1, 01: 2}"}), HasSubstr("has token 1 twice"));
  EXPECT_THAT(refusal_of({"--presence_penalty=2.5"}), HasSubstr("--presence_penalty"));
  EXPECT_THAT(refusal_of({"--banned_token_ids=[2147483648]"}), HasSubstr("--banned_token_ids"));
}

}  // namespace
}  // namespace hone
