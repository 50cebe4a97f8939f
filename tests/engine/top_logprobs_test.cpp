// Tests of the most probable tokens that requests may ask for.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/error.h"
#include "engine/engine.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

std::vector<Completion> completions(FixtureModel& fixture, std::span<const Request> requests,
                                    const EngineOptions& options) {
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()), options);
  return engine.generate(requests);
}

// Every fourth request asks for none.
std::vector<Request> requests_of(std::int64_t count) {
  std::vector<Request> requests;
  for (std::int64_t i = 0; i < count; ++i) {
    Request request{{static_cast<TokenId>(i % 7), 3, static_cast<TokenId>(i % 11)}, {.max_tokens = 3 + i % 5}};
    request.sampling.temperature = i % 3 == 0 ? 0 : 0.8;
    request.sampling.logprobs = i % 4;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(TopLogprobsOfRequests, StandBesideTheTokensAndChangeNone) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    FixtureModel fixture("qwen3", dtype);
    const std::vector<Request> requests = requests_of(24);
    std::vector<Request> plain = requests;
    for (Request& request : plain) request.sampling.logprobs = 0;
    const EngineOptions without{.max_model_len = 64, .max_num_seqs = 5};
    EngineOptions with = without;
    with.max_logprobs = 3;
    const auto expected = completions(fixture, plain, without);
    const auto listed = completions(fixture, requests, with);
    for (std::size_t r = 0; r < requests.size(); ++r) {
      SCOPED_TRACE(text_of("request ", r));
      ASSERT_EQ(listed[r].tokens, expected[r].tokens);
      ASSERT_EQ(listed[r].logps, expected[r].logps);
      const auto asked = static_cast<std::size_t>(requests[r].sampling.logprobs);
      ASSERT_EQ(listed[r].top_logprobs.size(), asked == 0 ? 0 : listed[r].tokens.size());
      for (std::size_t t = 0; t < listed[r].top_logprobs.size(); ++t) {
        const std::vector<TokenLogprob>& tops = listed[r].top_logprobs[t];
        ASSERT_EQ(tops.size(), asked);
        for (std::size_t i = 1; i < tops.size(); ++i) EXPECT_GE(tops[i - 1].logp, tops[i].logp);
        EXPECT_GE(tops[0].logp, listed[r].logps[t]);
        for (const TokenLogprob& top : tops) {
          if (top.token == listed[r].tokens[t]) {
            EXPECT_EQ(top.logp, listed[r].logps[t]);
          }
        }
        if (requests[r].sampling.temperature == 0) {
          EXPECT_EQ(tops[0].token, listed[r].tokens[t]);
        }
      }
    }
    // The lists do not depend on the other requests.
    const auto alone = completions(fixture, {&requests[7], 1}, with);
    EXPECT_EQ(alone[0].top_logprobs, listed[7].top_logprobs);
  }
}

TEST(TopLogprobsOfRequests, MoreThanTheEngineListsAreRefused) {
  FixtureModel fixture("llama");
  Request request{{1, 2}, {.max_tokens = 2}};
  request.sampling.logprobs = 4;
  const auto refusal = [&] {
    try {
      completions(fixture, {&request, 1}, {.max_model_len = 64, .max_logprobs = 3});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(refusal(), "logprobs: is 4, expected 0 to 3");
}

}  // namespace
}  // namespace hone::test
