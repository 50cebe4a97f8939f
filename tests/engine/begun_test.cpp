// Completions that are continued where an earlier engine has left them, and those that are begun ahead of their turn:
// every bit is that of a completion that is drawn in one go.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/error.h"
#include "core/random.h"
#include "engine/engine.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

class Begun : public testing::Test {
 protected:
  [[nodiscard]] std::int64_t vocab() const { return fixture_.model->shape().vocab_size; }
  [[nodiscard]] Engine engine(const EngineOptions& options) {
    return {*fixture_.model, tokenizer_, fixture_.weights, std::make_shared<Arena>(test_device()), options};
  }
  // Requests with all kinds of ends: stop tokens, stop strings, lengths; some with penalties and bans.
  [[nodiscard]] std::vector<Request> requests(std::int64_t count, std::uint64_t seed) const {
    const RandomStream random(seed, "begun");
    std::uint64_t at = 0;
    std::vector<Request> all;
    for (std::int64_t i = 0; i < count; ++i) {
      Request request;
      const std::uint64_t length = 1 + random.below(at++, 40);
      for (std::uint64_t t = 0; t < length; ++t)
        request.prompt.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab()))));
      request.sampling.temperature = i % 4 == 0 ? 0 : 0.9;
      request.sampling.max_tokens = 1 + (i * 11) % 40;
      request.sampling.seed = seed * 1000 + static_cast<std::uint64_t>(i);
      if (i % 3 == 1)
        for (TokenId token = 0; token < vocab(); token += 17) request.sampling.stop_token_ids.push_back(token);
      if (i % 5 == 2) request.sampling.stop = {"q"};
      if (i % 5 == 3) request.sampling.repetition_penalty = 1.3;
      if (i % 7 == 4) {
        request.sampling.frequency_penalty = 0.5;
        request.sampling.min_tokens = std::min(1 + i % 3, request.sampling.max_tokens);
      }
      all.push_back(std::move(request));
    }
    return all;
  }

  static constexpr EngineOptions kOptions{
      .max_model_len = 96, .max_num_seqs = 8, .max_batch_tokens = 24, .block_size = 8, .adjust_logits = true};

  FixtureModel fixture_{"qwen3"};
  Tokenizer tokenizer_ = letter_tokenizer(fixture_.model->shape().vocab_size);
};

void expect_completion(const Completion& seen, const Completion& expected, const std::string& which) {
  EXPECT_EQ(seen.tokens, expected.tokens) << which;
  EXPECT_EQ(seen.logps, expected.logps) << which;
  EXPECT_EQ(seen.text, expected.text) << which;
  EXPECT_EQ(seen.finish_reason, expected.finish_reason) << which;
}

DrawnTokens first_of(const Completion& completion, std::size_t count) {
  const auto end = static_cast<std::ptrdiff_t>(count);
  return {{completion.tokens.begin(), completion.tokens.begin() + end},
          {completion.logps.begin(), completion.logps.begin() + end}};
}

TEST_F(Begun, CompletionsContinueBitForBit) {
  const std::vector<Request> all = requests(30, 1);
  const std::vector<Completion> whole = engine(kOptions).generate(all);
  for (const int cut : {1, 2, 5, 100}) {
    std::vector<Request> begun = all;
    for (std::size_t i = 0; i < all.size(); ++i)
      begun[i].begun = first_of(whole[i], std::min(whole[i].tokens.size(), static_cast<std::size_t>(cut)));
    std::set<std::size_t> finished;
    const std::vector<Completion> continued =
        engine(kOptions).generate(begun, [&](std::size_t i, const Completion& completion) {
          EXPECT_TRUE(finished.insert(i).second) << i;
          EXPECT_EQ(completion.tokens, whole[i].tokens);
        });
    EXPECT_EQ(finished.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      expect_completion(continued[i], whole[i], text_of("request ", i, ", cut after ", cut));
  }
}

TEST_F(Begun, TokensAfterTheEndAreDropped) {
  const std::vector<Request> all = requests(20, 2);
  const std::vector<Completion> whole = engine(kOptions).generate(all);
  std::vector<Request> begun = all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    begun[i].begun = first_of(whole[i], whole[i].tokens.size());
    begun[i].begun.tokens.push_back(3);
    begun[i].begun.logps.push_back(-1);
  }
  Engine completed = engine(kOptions);
  const std::vector<Completion> seen = completed.generate(begun);
  for (std::size_t i = 0; i < all.size(); ++i) expect_completion(seen[i], whole[i], text_of("request ", i));
  EXPECT_EQ(completed.statistics().steps, 0) << "all of them were complete";
}

// Completions that are begun ahead change no other, are the beginnings of what they would be, and can be continued.
TEST_F(Begun, AheadOfTheirTurn) {
  const std::vector<Request> now = requests(12, 3);
  const std::vector<Request> next = requests(16, 4);
  const std::vector<Completion> expected = engine(kOptions).generate(now);
  const std::vector<Completion> later = engine(kOptions).generate(next);
  EngineOptions squeezed = kOptions;
  squeezed.num_blocks = 16;
  EngineOptions launching = kOptions;
  launching.launch_ahead = true;
  for (const EngineOptions& options : {kOptions, squeezed, launching}) {
    Engine first = engine(options);
    const Generated generated = first.generate(now, next, {});
    EXPECT_FALSE(first.has_work());
    ASSERT_EQ(generated.completions.size(), now.size());
    ASSERT_EQ(generated.ahead.size(), next.size());
    for (std::size_t i = 0; i < now.size(); ++i)
      expect_completion(generated.completions[i], expected[i], text_of("request ", i));
    std::size_t begun = 0;
    std::size_t complete = 0;
    std::vector<Request> rest = next;
    for (std::size_t i = 0; i < next.size(); ++i) {
      const Completion& ahead = generated.ahead[i];
      ASSERT_LE(ahead.tokens.size(), later[i].tokens.size()) << i;
      const DrawnTokens part = first_of(later[i], ahead.tokens.size());
      EXPECT_EQ(ahead.tokens, part.tokens) << i;
      EXPECT_EQ(ahead.logps, part.logps) << i;
      const bool is_complete = ahead.tokens.size() == later[i].tokens.size();
      EXPECT_EQ(ahead.finish_reason, is_complete ? later[i].finish_reason : FinishReason::kAbort) << i;
      begun += ahead.tokens.empty() ? 0 : 1;
      complete += is_complete ? 1 : 0;
      rest[i].begun = {ahead.tokens, ahead.logps};
    }
    EXPECT_GT(begun, complete);
    EXPECT_GT(complete, 0U);
    EXPECT_LT(begun, next.size());
    // The same once more: how far they come depends on the requests and the options only, not on what the engine has
    // of earlier ones.
    Engine second = engine(options);
    std::vector<Request> earlier = next;
    for (Request& request : earlier) request.sampling.max_tokens = 4;
    (void)second.generate(earlier);
    const Generated again = second.generate(now, next, {});
    for (std::size_t i = 0; i < next.size(); ++i) EXPECT_EQ(again.ahead[i].tokens, generated.ahead[i].tokens);
    const std::vector<Completion> continued = second.generate(rest);
    for (std::size_t i = 0; i < next.size(); ++i) expect_completion(continued[i], later[i], text_of("continued ", i));
  }
}

TEST_F(Begun, AnInvalidTokenIsRefused) {
  Request request{{1, 2}, {}};
  request.begun = {{static_cast<TokenId>(vocab())}, {-1.0f}};
  Engine refusing = engine(kOptions);
  EXPECT_THROW((void)refusing.add(request), Error);
}

}  // namespace
}  // namespace hone::test
