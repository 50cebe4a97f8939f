// Tests of proposed tokens: they follow what a sequence has repeated, and they change no result.
#include <gtest/gtest.h>

#include "core/random.h"
#include "engine/engine.h"
#include "engine/ngram_draft.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

using Tokens = std::vector<TokenId>;

TEST(NgramDraft, ProposesWhatFollowedTheLastTokens) {
  NgramDraft draft;
  EXPECT_EQ(draft.propose(Tokens{1, 2, 3, 4, 9, 2, 3}, 3), (Tokens{4, 9, 2}));
  // The longest match counts, and of equally long ones the last.
  NgramDraft longest;
  EXPECT_EQ(longest.propose(Tokens{1, 2, 3, 4, 2, 3, 5, 2, 3, 6, 1, 2, 3}, 1), (Tokens{4}));
  NgramDraft latest;
  EXPECT_EQ(latest.propose(Tokens{2, 3, 4, 2, 3, 5, 2, 3}, 1), (Tokens{5}));
}

TEST(NgramDraft, RepeatsWhatIsShorterThanTheProposal) {
  NgramDraft draft;
  EXPECT_EQ(draft.propose(Tokens{7, 1, 2, 1, 2}, 5), (Tokens{1, 2, 1, 2, 1}));
  EXPECT_EQ(draft.propose(Tokens{7, 1, 2, 1, 2, 2, 2, 2}, 2), (Tokens{2, 2}));
}

TEST(NgramDraft, ProposesNothingWithoutARepetition) {
  NgramDraft draft;
  EXPECT_TRUE(draft.propose(Tokens{1}, 4).empty());
  EXPECT_TRUE(draft.propose(Tokens{1, 2, 3, 1}, 4).empty());  // a single token is no repetition
  EXPECT_TRUE(draft.propose(Tokens{1, 2, 3, 1, 4}, 4).empty());
  EXPECT_TRUE(draft.propose(Tokens{1, 2, 3, 1, 4, 1, 2}, 0).empty());
}

// Requests that repeat themselves, since small models do so when they decode greedily, among others that do not.
std::vector<Request> repeating_requests(std::int64_t count, std::int64_t vocab) {
  const RandomStream random(8, "speculation");
  std::vector<Request> requests;
  std::uint64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Request request;
    const std::uint64_t length = 1 + random.below(at++, 20);
    for (std::uint64_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))));
    }
    request.sampling.temperature = i % 3 == 0 ? 0.8 : 0;
    request.sampling.max_tokens = 1 + (i * 7) % 60;
    request.sampling.logprobs = i % 4 == 1 ? 3 : 0;
    if (i % 5 == 2) request.sampling.frequency_penalty = 0.4;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Result {
  std::vector<Completion> completions;
  Engine::Statistics statistics;
};

Result run_all(FixtureModel& fixture, std::span<const Request> requests, const EngineOptions& options) {
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()), options);
  std::vector<Completion> completions = engine.generate(requests);
  return {std::move(completions), engine.statistics()};
}

void expect_bits(const Completion& a, const Completion& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.logps, b.logps);
  EXPECT_EQ(a.top_logprobs, b.top_logprobs);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.finish_reason, b.finish_reason);
}

TEST(Speculation, ChangesNoBit) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    FixtureModel fixture("qwen3", dtype);
    std::vector<Request> requests = repeating_requests(24, fixture.model->shape().vocab_size);
    const EngineOptions plain{
        .max_model_len = 96, .max_num_seqs = 24, .max_batch_tokens = 256, .adjust_logits = true, .max_logprobs = 3};
    for (std::size_t i = 0; const Completion& whole : run_all(fixture, requests, plain).completions) {
      SamplingParams& sampling = requests[i].sampling;
      if (i % 4 == 3) sampling.stop_token_ids = {whole.tokens[whole.tokens.size() / 2]};
      if (i % 8 == 5 && whole.text.size() > 4) sampling.stop = {whole.text.substr(whole.text.size() / 2, 2)};
      ++i;
    }
    const auto expected = run_all(fixture, requests, plain);
    const auto expect_same = [&](const EngineOptions& options, bool preempts) {
      const Result result = run_all(fixture, requests, options);
      EXPECT_GT(result.statistics.accepted_tokens, 0);
      EXPECT_LT(result.statistics.accepted_tokens, result.statistics.drafted_tokens);
      EXPECT_EQ(result.statistics.preemptions > 0, preempts);
      EXPECT_EQ(result.statistics.generated_tokens, expected.statistics.generated_tokens);
      for (std::size_t i = 0; i < requests.size(); ++i) expect_bits(result.completions[i], expected.completions[i]);
    };
    for (const std::int64_t proposed : {1, 3, 7}) {
      EngineOptions options = plain;
      options.num_speculative_tokens = proposed;
      expect_same(options, false);
    }
    EngineOptions squeezed = plain;
    squeezed.max_num_seqs = 6;
    squeezed.max_batch_tokens = 9;
    squeezed.block_size = 4;
    squeezed.num_blocks = 26;
    squeezed.num_speculative_tokens = 5;
    expect_same(squeezed, true);
  }
}

// The blocks that a sequence with rejected proposals leaves behind hold what their tokens need.
TEST(Speculation, BlocksOfFormerRequestsAreRight) {
  FixtureModel fixture("qwen2", DType::kBf16);
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  EngineOptions options{.max_model_len = 128, .max_num_seqs = 4, .block_size = 4, .num_speculative_tokens = 6};
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()), options);
  const Request first{{3, 1, 4, 1, 5}, {.temperature = 0, .max_tokens = 40}};
  const std::vector<Completion> begun = engine.generate({&first, 1});
  EXPECT_LT(engine.statistics().steps, 40);  // one for each token without proposals
  Request longer = first;
  longer.prompt.insert(longer.prompt.end(), begun[0].tokens.begin(), begun[0].tokens.end());
  const std::vector<Completion> continued = engine.generate({&longer, 1});
  EXPECT_GT(engine.statistics().prefix_hit_tokens, 30);
  options.num_speculative_tokens = 0;
  options.enable_prefix_caching = false;
  expect_bits(continued[0], run_all(fixture, {&longer, 1}, options).completions[0]);
}

TEST(Speculation, ACancelledRequestLeavesNothingWrong) {
  FixtureModel fixture("qwen2");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  const EngineOptions options{.max_model_len = 96, .max_num_seqs = 4, .block_size = 4, .num_speculative_tokens = 4};
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()), options);
  const Request request{{2, 7, 1}, {.temperature = 0, .max_tokens = 60}};
  const RequestId goes = engine.add(request);
  for (int i = 0; i < 12; ++i) (void)engine.step();
  engine.cancel(goes);
  const Completion part = engine.take(goes);
  const std::vector<Completion> whole = engine.generate({&request, 1});
  EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), whole[0].tokens.begin()));
  EngineOptions plain = options;
  plain.num_speculative_tokens = 0;
  expect_bits(whole[0], run_all(fixture, {&request, 1}, plain).completions[0]);
}

TEST(Speculation, IsRefusedWithStepsAhead) {
  EXPECT_ANY_THROW((void)resolved({.num_speculative_tokens = 2, .launch_ahead = true}));
  EXPECT_ANY_THROW((void)resolved({.num_speculative_tokens = -1}));
}

}  // namespace
}  // namespace hone::test
