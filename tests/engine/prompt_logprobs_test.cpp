// Tests of the log-probabilities of prompts: those that the same tokens have when they are drawn.
#include <gtest/gtest.h>

#include "core/random.h"
#include "engine/engine.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

constexpr std::int64_t kListed = 4;

std::vector<Request> requests_of(std::int64_t count, std::int64_t vocab) {
  const RandomStream random(3, "prompts");
  std::vector<Request> requests;
  std::uint64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Request request;
    const std::uint64_t length = 1 + random.below(at++, 30);
    for (std::uint64_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))));
    }
    request.sampling.max_tokens = 3 + i % 20;
    request.sampling.logprobs = kListed;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Completion> completions_of(FixtureModel& fixture, std::span<const Request> requests,
                                       const EngineOptions& options, std::int64_t* preemptions = nullptr) {
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()), options);
  std::vector<Completion> completions = engine.generate(requests);
  if (preemptions != nullptr) *preemptions = engine.statistics().preemptions;
  return completions;
}

TEST(PromptLogprobs, AreThoseOfTheTokensWhenTheyWereDrawn) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    FixtureModel fixture("qwen3", dtype);
    const std::vector<Request> drawn = requests_of(12, fixture.model->shape().vocab_size);
    EngineOptions options{.max_model_len = 96,
                          .max_num_seqs = 12,
                          .max_batch_tokens = 256,
                          .adjust_logits = true,
                          .max_logprobs = kListed};
    const std::vector<Completion> completions = completions_of(fixture, drawn, options);
    // The same texts as prompts, every third without log-probabilities.
    std::vector<Request> given = drawn;
    for (std::size_t i = 0; i < given.size(); ++i) {
      given[i].prompt.insert(given[i].prompt.end(), completions[i].tokens.begin(), completions[i].tokens.end());
      given[i].sampling.max_tokens = 5;
      if (i % 3 != 2) given[i].sampling.prompt_logprobs = i % 2 == 0 ? kListed : 0;
    }
    const std::vector<Completion> plain = [&] {
      std::vector<Request> without = given;
      for (Request& request : without) request.sampling.prompt_logprobs.reset();
      return completions_of(fixture, without, options);
    }();
    const auto expect_right = [&](const std::vector<Completion>& results) {
      for (std::size_t i = 0; i < given.size(); ++i) {
        EXPECT_EQ(results[i].tokens, plain[i].tokens);
        EXPECT_EQ(results[i].logps, plain[i].logps);
        EXPECT_EQ(results[i].top_logprobs, plain[i].top_logprobs);
        if (!given[i].sampling.prompt_logprobs) {
          EXPECT_TRUE(results[i].prompt_logps.empty());
          continue;
        }
        ASSERT_EQ(results[i].prompt_logps.size(), given[i].prompt.size() - 1);
        const std::size_t first = drawn[i].prompt.size() - 1;
        EXPECT_EQ(std::vector<float>(results[i].prompt_logps.begin() + static_cast<std::ptrdiff_t>(first),
                                     results[i].prompt_logps.end()),
                  completions[i].logps);
        if (*given[i].sampling.prompt_logprobs == 0) {
          EXPECT_TRUE(results[i].prompt_top_logprobs.empty());
          continue;
        }
        ASSERT_EQ(results[i].prompt_top_logprobs.size(), results[i].prompt_logps.size());
        for (std::size_t t = 0; t < completions[i].tokens.size(); ++t) {
          EXPECT_EQ(results[i].prompt_top_logprobs[first + t], completions[i].top_logprobs[t]);
        }
      }
    };
    options.max_prompt_samples = 64;
    expect_right(completions_of(fixture, given, options));
    // Few of them in a step, with steps ahead and with proposed tokens.
    options.max_prompt_samples = 3;
    options.launch_ahead = true;
    expect_right(completions_of(fixture, given, options));
    options.launch_ahead.reset();
    options.num_speculative_tokens = 3;
    expect_right(completions_of(fixture, given, options));
    std::int64_t preemptions = 0;
    expect_right(completions_of(fixture, given,
                                {.max_model_len = 96,
                                 .max_num_seqs = 6,
                                 .max_batch_tokens = 16,
                                 .block_size = 4,
                                 .num_blocks = 24,
                                 .adjust_logits = true,
                                 .max_logprobs = kListed,
                                 .max_prompt_samples = 5,
                                 .launch_ahead = true},
                                &preemptions));
    EXPECT_GT(preemptions, 0);
  }
}

TEST(PromptLogprobs, MoreThanTheEngineListsAreRefused) {
  FixtureModel fixture("qwen2");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()),
                {.max_model_len = 64, .adjust_logits = true, .max_logprobs = 2, .max_prompt_samples = 8});
  EXPECT_ANY_THROW((void)engine.add({{1, 2}, {.prompt_logprobs = 3}}));
  EXPECT_ANY_THROW((void)engine.add({{1, 2}, {.prompt_logprobs = -1}}));
  EXPECT_NO_THROW((void)engine.add({{1, 2}, {.prompt_logprobs = 2, .max_tokens = 1}}));
}

}  // namespace
}  // namespace hone::test
