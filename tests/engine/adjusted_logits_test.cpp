// Tests of penalties, biases, allowed and banned tokens in the engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/random.h"
#include "engine/engine.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

std::vector<Completion> adjusted_completions(FixtureModel& fixture, std::span<const Request> requests,
                                             const EngineOptions& options) {
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()), options);
  return engine.generate(requests);
}

Completion generate_one(FixtureModel& fixture, const Request& request) {
  return adjusted_completions(fixture, {&request, 1},
                              {.max_model_len = 96, .max_num_seqs = 1, .adjust_logits = true})[0];
}

// Requests of every kind of adjustment, and some of none.
std::vector<Request> adjusted_requests(std::int64_t count, std::int64_t vocab) {
  const RandomStream random(6, "adjusted");
  std::vector<Request> requests;
  std::uint64_t at = 0;
  const auto token = [&] { return static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))); };
  for (std::int64_t i = 0; i < count; ++i) {
    Request request{{}, {.temperature = i % 5 == 4 ? 0.0 : 1.0, .max_tokens = 12 + i % 9}};
    for (std::uint64_t length = 1 + random.below(at++, 30); length > 0; --length) request.prompt.push_back(token());
    SamplingParams& sampling = request.sampling;
    sampling.seed = static_cast<std::uint64_t>(i);
    if (i % 6 == 1 || i % 6 == 2) sampling.repetition_penalty = 1.4;
    if (i % 6 == 2 || i % 6 == 3) sampling.frequency_penalty = 0.7;
    if (i % 6 == 2 || i % 6 == 4) sampling.presence_penalty = -0.6;
    if (i % 4 == 1) sampling.logit_bias = {{token(), 3.0}, {token(), -4.0}};
    if (i % 8 == 5) {
      for (int n = 0; n < 12; ++n) sampling.allowed_token_ids.push_back(token());
    }
    if (i % 4 == 2) sampling.banned_token_ids = {token(), token()};
    requests.push_back(std::move(request));
  }
  return requests;
}

void expect_same_draws(std::span<const Completion> completions, std::span<const Completion> expected) {
  ASSERT_EQ(completions.size(), expected.size());
  for (std::size_t i = 0; i < completions.size(); ++i) {
    ASSERT_EQ(completions[i].tokens, expected[i].tokens) << "request " << i;
    ASSERT_EQ(completions[i].logps, expected[i].logps) << "request " << i;
  }
}

TEST(AdjustedLogits, TokensDependOnTheRequestAlone) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    FixtureModel fixture("qwen3", dtype);
    const std::vector<Request> requests = adjusted_requests(48, fixture.model->shape().vocab_size);
    const EngineOptions wide{
        .max_model_len = 96, .max_num_seqs = 48, .max_batch_tokens = 256, .adjust_logits = true, .launch_ahead = false};
    const auto expected = adjusted_completions(fixture, requests, wide);
    EngineOptions ahead = wide;
    ahead.launch_ahead = true;
    expect_same_draws(adjusted_completions(fixture, requests, ahead), expected);
    expect_same_draws(adjusted_completions(fixture, requests,
                                           {.max_model_len = 96,
                                            .max_num_seqs = 6,
                                            .max_batch_tokens = 7,
                                            .block_size = 8,
                                            .num_blocks = 14,
                                            .adjust_logits = true,
                                            .launch_ahead = true}),
                      expected);
    for (std::size_t i = 0; i < requests.size(); i += 6) {
      const EngineOptions alone{
          .max_model_len = 96, .max_num_seqs = 1, .adjust_logits = requests[i].sampling.adjusts_logits()};
      expect_same_draws(adjusted_completions(fixture, {&requests[i], 1}, alone), {&expected[i], 1});
    }
  }
}

// A penalty of what has been generated is a bias that is chosen again before each token.
TEST(AdjustedLogits, PenaltiesAreBiasesOfWhatWasGenerated) {
  FixtureModel fixture("llama");
  for (const double temperature : {0.0, 1.0}) {
    for (const bool frequency : {false, true}) {
      Request request{{3, 4, 5, 3}, {.temperature = temperature, .max_tokens = 30, .seed = 2}};
      const Completion plain = generate_one(fixture, request);
      (frequency ? request.sampling.frequency_penalty : request.sampling.presence_penalty) = 1.5;
      const Completion penalized = generate_one(fixture, request);
      EXPECT_NE(penalized.tokens, plain.tokens);
      Request step{request.prompt, {.temperature = temperature, .max_tokens = 1, .seed = 2}};
      for (const TokenId token : penalized.tokens) {
        ASSERT_EQ(generate_one(fixture, step).tokens[0], token) << "after " << step.prompt.size() << " tokens";
        double& bias = step.sampling.logit_bias[token];
        bias = frequency ? bias - 1.5 : -1.5;
        step.prompt.push_back(token);
      }
    }
  }
}

TEST(AdjustedLogits, BiasesAllowAndBan) {
  FixtureModel fixture("qwen2");
  const Request plain{{1, 2, 3}, {.temperature = 0, .max_tokens = 20}};
  const Completion whole = generate_one(fixture, plain);
  Request request = plain;
  request.sampling.banned_token_ids = {whole.tokens[0], whole.tokens[3]};
  for (const TokenId token : generate_one(fixture, request).tokens) {
    EXPECT_EQ(std::ranges::count(request.sampling.banned_token_ids, token), 0);
  }
  request = plain;
  request.sampling.temperature = 1;
  request.sampling.allowed_token_ids = {7, 9, 1, 7};
  request.sampling.repetition_penalty = 1.5;  // token 2 of the prompt has an entry and stays forbidden
  request.sampling.logit_bias = {{11, 100.0}};
  const Completion allowed = generate_one(fixture, request);
  for (const TokenId token : allowed.tokens) EXPECT_TRUE(token == 7 || token == 9 || token == 1) << token;
  request = plain;
  request.sampling.logit_bias = {{11, 100.0}};
  const Completion biased = generate_one(fixture, request);
  EXPECT_EQ(biased.tokens, std::vector<TokenId>(20, 11));
  EXPECT_LT(biased.logps[0], -1.0f);  // that of the model's own logits
}

// Sequences that share the blocks of a prompt have more entries together than the KV cache has tokens.
TEST(AdjustedLogits, SharedPromptsHaveRoomForTheirEntries) {
  FixtureModel fixture("qwen2");
  Request request{{}, {.max_tokens = 5}};
  for (TokenId token = 0; token < 40; ++token) request.prompt.push_back(token);
  request.sampling.repetition_penalty = 1.2;
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    request.sampling.seed = seed;
    requests.push_back(request);
  }
  const EngineOptions options{
      .max_model_len = 48, .max_num_seqs = 12, .block_size = 4, .num_blocks = 40, .adjust_logits = true};
  EngineOptions unshared = options;
  unshared.enable_prefix_caching = false;
  expect_same_draws(adjusted_completions(fixture, requests, options),
                    adjusted_completions(fixture, requests, unshared));
}

TEST(AdjustedLogits, RefusesWhatIsOutOfRange) {
  FixtureModel fixture("llama");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()),
                {.max_model_len = 8, .adjust_logits = true});
  const auto vocab = static_cast<TokenId>(fixture.model->shape().vocab_size);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<TokenId> all;
  for (TokenId token = 0; token < vocab; ++token) all.push_back(token);
  const SamplingParams wrong[] = {{.frequency_penalty = 2.1},
                                  {.frequency_penalty = nan},
                                  {.presence_penalty = -2.1},
                                  {.logit_bias = {{vocab, 1.0}}},
                                  {.logit_bias = {{-1, 1.0}}},
                                  {.logit_bias = {{1, 101.0}}},
                                  {.logit_bias = {{1, nan}}},
                                  {.allowed_token_ids = {vocab}},
                                  {.allowed_token_ids = {1}, .banned_token_ids = {1}},
                                  {.banned_token_ids = {-1}},
                                  {.banned_token_ids = all},
                                  {.banned_token_ids = std::vector<TokenId>(kMaxListedTokens + 1, 1)}};
  for (const SamplingParams& sampling : wrong) EXPECT_THROW((void)engine.add({{1}, sampling}), Error);
  EXPECT_FALSE(engine.has_work());
}

}  // namespace
}  // namespace hone::test
