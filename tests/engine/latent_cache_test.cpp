// Tests of a KV cache of latent rows: it holds less, and changes no bit of a result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "engine/engine.h"
#include "engine/generation_workspace.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

// Requests of several lengths, of which every third begins as the one before.
std::vector<Request> latent_requests(std::int64_t count, std::int64_t vocab) {
  const RandomStream random(21, "latent rows");
  std::vector<Request> requests;
  std::uint64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Request request;
    if (i % 3 == 2) request.prompt = requests.back().prompt;
    const std::uint64_t length = 1 + random.below(at++, 40);
    for (std::uint64_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))));
    }
    request.sampling.temperature = i % 4 == 0 ? 0 : 0.8;
    request.sampling.max_tokens = 3 + (i * 5) % 16;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

struct LatentRun {
  std::vector<Completion> completions;
  Engine::Statistics statistics;
  std::int64_t kv_bytes = 0;
};

LatentRun run_engine(FixtureModel& fixture, std::span<const Request> requests, const EngineOptions& options) {
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()), options);
  engine.prepare();  // changes no result
  EXPECT_EQ(engine.statistics().steps, 0);
  std::vector<Completion> completions = engine.generate(requests);
  return {std::move(completions), engine.statistics(), engine.kv_bytes()};
}

void expect_same_completions(std::span<const Completion> completions, std::span<const Completion> expected,
                             std::string_view which) {
  ASSERT_EQ(completions.size(), expected.size());
  for (std::size_t i = 0; i < completions.size(); ++i) {
    ASSERT_EQ(completions[i].tokens, expected[i].tokens) << which << ", request " << i;
    ASSERT_EQ(completions[i].logps, expected[i].logps) << which << ", request " << i;
  }
}

TEST(LatentCache, ChangesNoBit) {
  for (const std::string_view name : {"deepseek_v2", "deepseek_v3"}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      FixtureModel fixture(name, dtype);
      const std::vector<Request> requests = latent_requests(21, fixture.model->shape().vocab_size);
      const EngineOptions expanded{
          .max_model_len = 120, .max_num_seqs = 21, .max_batch_tokens = 256, .enable_prefix_caching = false};
      const LatentRun expected = run_engine(fixture, requests, expanded);
      const auto expect_same = [&](EngineOptions options, std::string_view which) {
        options.latent_kv_cache = true;
        const LatentRun run = run_engine(fixture, requests, options);
        expect_same_completions(run.completions, expected.completions, text_of(name, ", ", which));
        return run;
      };
      const LatentRun wide = expect_same(expanded, "wide");
      // A token takes a latent row of each layer in place of keys and values of all heads.
      const ModelShape& s = fixture.model->shape();
      const double share =
          static_cast<double>(s.latent_width) / static_cast<double>(2 * s.num_attention_heads * s.head_dim);
      EXPECT_NEAR(static_cast<double>(wide.kv_bytes) / static_cast<double>(expected.kv_bytes), share, 0.01 * share);
      EngineOptions squeezed{
          .max_model_len = 120, .max_num_seqs = 6, .max_batch_tokens = 9, .block_size = 4, .num_blocks = 34};
      for (const bool ahead : {false, true}) {
        squeezed.launch_ahead = ahead;
        const LatentRun run = expect_same(squeezed, "squeezed");
        EXPECT_GT(run.statistics.preemptions, 0);
        EXPECT_GT(run.statistics.prefix_hit_tokens, 0);
      }
      EngineOptions proposing{.max_model_len = 120, .max_num_seqs = 21, .num_speculative_tokens = 3};
      EXPECT_GT(expect_same(proposing, "with proposed tokens").statistics.drafted_tokens, 0);
    }
  }
}

// The bytes of a block include the keys and values to which a step expands it, once for all layers.
TEST(LatentCache, ABlockTakesItsRowsAndTheirExpansion) {
  FixtureModel fixture("deepseek_v3", DType::kBf16);
  const ModelShape& s = fixture.model->shape();
  // With few blocks a GPU's scratch memory for attention would hide a part of them.
  EngineOptions options = resolved({.max_model_len = 256, .max_num_seqs = 1024});
  const auto bytes = [&] {
    return static_cast<std::int64_t>(bytes_of_block(*fixture.model, DType::kBf16, options, test_device().kind()));
  };
  const std::int64_t keys = s.num_attention_heads * s.head_dim;
  EXPECT_EQ(bytes(), options.block_size * s.num_hidden_layers * 2 * keys * 2);
  options.latent_kv_cache = true;
  const std::int64_t rows = options.block_size * s.num_hidden_layers * s.latent_width * 2;
  EXPECT_GT(bytes(), rows + options.block_size * 2 * keys * 2);
  EXPECT_LT(bytes(), rows + options.block_size * 5 * keys * 2);
}

std::string latent_refusal(std::string_view name, EngineOptions options) {
  FixtureModel fixture(name);
  options.latent_kv_cache = true;
  try {
    const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
    const Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LatentCache, IsRefusedWhereItCannotBe) {
  EXPECT_EQ(latent_refusal("deepseek_v2", {.max_model_len = 16}), "no error");
  EXPECT_THAT(latent_refusal("qwen3", {.max_model_len = 16}),
              testing::HasSubstr("latent_kv_cache: is true, but this model has no latent attention"));
  EXPECT_THAT(latent_refusal("deepseek_v2", {.max_model_len = 16, .adapter_slots = 2}),
              testing::HasSubstr("latent_kv_cache: is true, but adapters by name (2 slots)"));
}

}  // namespace
}  // namespace hone::test
