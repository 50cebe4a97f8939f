// Runs of engines whose KV cache has another form, for the tests of each form: what a request computes depends on its
// tokens alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "engine/engine.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {

// Requests whose prompts have up to twice `longest` tokens. Every third begins as the one before, and every third
// repeats itself, so that tokens are proposed.
inline std::vector<Request> cache_requests(const RandomStream& random, std::int64_t count, std::uint64_t longest,
                                           std::int64_t vocab) {
  std::vector<Request> requests;
  std::uint64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Request request;
    if (i % 3 == 2) request.prompt = requests.back().prompt;
    const std::uint64_t length = 1 + random.below(at++, longest);
    for (std::uint64_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))));
    }
    if (i % 3 == 0) {
      const std::vector<TokenId> once = request.prompt;
      request.prompt.insert(request.prompt.end(), once.begin(), once.end());
    }
    request.sampling.temperature = i % 4 == 0 ? 0 : 0.8;
    request.sampling.max_tokens = 3 + (i * 5) % 16;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

inline std::unique_ptr<Engine> cache_engine(const Model& model, const TensorStore& weights,
                                            const EngineOptions& options, const CacheOptions& cache) {
  static const Tokenizer tokenizer = letter_tokenizer(8);  // the tests read no text
  EngineOptions all = options;
  all.cache = cache;
  return std::make_unique<Engine>(model, tokenizer, weights, std::make_shared<Arena>(test_device()), all);
}

struct CacheRun {
  std::vector<Completion> completions;
  Engine::Statistics statistics;
  std::int64_t kv_bytes = 0;
};

inline CacheRun run_cache(const Model& model, const TensorStore& weights, std::span<const Request> requests,
                          const EngineOptions& options, const CacheOptions& cache) {
  const std::unique_ptr<Engine> engine = cache_engine(model, weights, options, cache);
  engine->prepare();  // changes no result
  EXPECT_EQ(engine->statistics().steps, 0);
  std::vector<Completion> completions = engine->generate(requests);
  return {std::move(completions), engine->statistics(), engine->kv_bytes()};
}

inline void expect_same_bits(std::span<const Completion> completions, std::span<const Completion> expected,
                             std::string_view which) {
  ASSERT_EQ(completions.size(), expected.size());
  for (std::size_t i = 0; i < completions.size(); ++i) {
    ASSERT_EQ(completions[i].tokens, expected[i].tokens) << which << ", request " << i;
    ASSERT_EQ(completions[i].logps, expected[i].logps) << which << ", request " << i;
  }
}

// Alone, together, in chunks, preempted, with blocks that others have computed, with proposed tokens and ahead of the
// host: with `cache`, each request has the tokens and log-probabilities that it has in one batch with `expected_cache`.
// longest: of prompt and completion. Returns how many tokens were proposed.
inline std::int64_t expect_bits_of_tokens_alone(const Model& model, const TensorStore& weights,
                                                std::span<const Request> requests, std::int64_t longest,
                                                const CacheOptions& cache, const CacheOptions& expected_cache,
                                                const std::string& name) {
  const auto count = static_cast<std::int64_t>(requests.size());
  const EngineOptions wide{.max_model_len = longest,
                           .max_num_seqs = count,
                           .max_batch_tokens = 1024,
                           .enable_prefix_caching = false,
                           .launch_ahead = false};
  const CacheRun expected = run_cache(model, weights, requests, wide, expected_cache);
  const auto expect_same = [&](const EngineOptions& options, std::string_view which) {
    CacheRun run = run_cache(model, weights, requests, options, cache);
    expect_same_bits(run.completions, expected.completions, text_of(name, ", ", which));
    return run;
  };
  expect_same(wide, "wide");
  EngineOptions alone = wide;
  alone.max_num_seqs = 1;
  expect_same(alone, "alone");
  EngineOptions squeezed{.max_model_len = longest,
                         .max_num_seqs = 6,
                         .max_batch_tokens = 9,
                         .block_size = 4,
                         .num_blocks = (longest + 3) / 4 + 4};
  for (const bool ahead : {false, true}) {
    squeezed.launch_ahead = ahead;
    const CacheRun run = expect_same(squeezed, "squeezed");
    EXPECT_GT(run.statistics.preemptions, 0);
    EXPECT_GT(run.statistics.prefix_hit_tokens, 0);
  }
  expect_same({.max_model_len = longest, .max_num_seqs = 4, .max_batch_tokens = 64}, "a few together");
  const EngineOptions proposing{.max_model_len = longest, .max_num_seqs = count, .num_speculative_tokens = 3};
  const std::int64_t drafted = expect_same(proposing, "with proposed tokens").statistics.drafted_tokens;
  // A second time in the same engine, whose blocks are found now.
  const std::unique_ptr<Engine> engine =
      cache_engine(model, weights, {.max_model_len = longest, .max_num_seqs = count}, cache);
  (void)engine->generate(requests);
  const std::int64_t hits = engine->statistics().prefix_hit_tokens;
  expect_same_bits(engine->generate(requests), expected.completions, name + ", again");
  EXPECT_GT(engine->statistics().prefix_hit_tokens, hits);
  return drafted;
}

}  // namespace hone::test
