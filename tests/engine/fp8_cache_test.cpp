// Tests of a KV cache in FP8: what a request computes depends on its tokens alone, it differs from a cache of the
// model's type by rounding, and it takes half of the memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "core/random.h"
#include "engine/engine.h"
#include "engine/generation_workspace.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

// Requests of several lengths. Every third begins as the one before, and every third repeats itself, so that tokens are
// proposed.
std::vector<Request> fp8_requests(std::int64_t count, std::uint64_t longest, std::int64_t vocab) {
  const RandomStream random(22, "fp8 cache");
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

struct Fp8Run {
  std::vector<Completion> completions;
  Engine::Statistics statistics;
  std::int64_t kv_bytes = 0;
};

// An engine whose cache is in FP8.
std::unique_ptr<Engine> fp8_engine(const Model& model, const TensorStore& weights, EngineOptions options) {
  static const Tokenizer tokenizer = letter_tokenizer(8);  // the tests read no text
  options.kv_cache_dtype = KvCacheDtype::kFp8;
  return std::make_unique<Engine>(model, tokenizer, weights, std::make_shared<Arena>(test_device()), options);
}

Fp8Run run_fp8(const Model& model, const TensorStore& weights, std::span<const Request> requests,
               const EngineOptions& options) {
  const std::unique_ptr<Engine> engine = fp8_engine(model, weights, options);
  std::vector<Completion> completions = engine->generate(requests);
  return {std::move(completions), engine->statistics(), engine->kv_bytes()};
}

void expect_equal_completions(std::span<const Completion> completions, std::span<const Completion> expected,
                              std::string_view which) {
  ASSERT_EQ(completions.size(), expected.size());
  for (std::size_t i = 0; i < completions.size(); ++i) {
    ASSERT_EQ(completions[i].tokens, expected[i].tokens) << which << ", request " << i;
    ASSERT_EQ(completions[i].logps, expected[i].logps) << which << ", request " << i;
  }
}

// Alone, together, in chunks, preempted, with blocks that others have computed, with proposed tokens and ahead of the
// host: each request has the same tokens and log-probabilities. Returns how many tokens were proposed.
std::int64_t expect_own_bits(const Model& model, const TensorStore& weights, std::span<const Request> requests,
                             std::int64_t longest, std::string_view name) {
  const auto count = static_cast<std::int64_t>(requests.size());
  const EngineOptions wide{.max_model_len = longest,
                           .max_num_seqs = count,
                           .max_batch_tokens = 1024,
                           .enable_prefix_caching = false,
                           .launch_ahead = false};
  const Fp8Run expected = run_fp8(model, weights, requests, wide);
  const auto expect_same = [&](const EngineOptions& options, std::string_view which) {
    Fp8Run run = run_fp8(model, weights, requests, options);
    expect_equal_completions(run.completions, expected.completions, text_of(name, ", ", which));
    return run;
  };
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
    const Fp8Run run = expect_same(squeezed, "squeezed");
    EXPECT_GT(run.statistics.preemptions, 0);
    EXPECT_GT(run.statistics.prefix_hit_tokens, 0);
  }
  expect_same({.max_model_len = longest, .max_num_seqs = 4, .max_batch_tokens = 64}, "a few together");
  const EngineOptions proposing{.max_model_len = longest, .max_num_seqs = count, .num_speculative_tokens = 3};
  const std::int64_t drafted = expect_same(proposing, "with proposed tokens").statistics.drafted_tokens;
  // A second time in the same engine, whose blocks are found now.
  const std::unique_ptr<Engine> engine = fp8_engine(model, weights, {.max_model_len = longest, .max_num_seqs = count});
  (void)engine->generate(requests);
  const std::int64_t hits = engine->statistics().prefix_hit_tokens;
  expect_equal_completions(engine->generate(requests), expected.completions, text_of(name, ", again"));
  EXPECT_GT(engine->statistics().prefix_hit_tokens, hits);
  return drafted;
}

TEST(Fp8Cache, ARequestDependsOnItsTokensAlone) {
  std::int64_t drafted = 0;
  for (const std::string_view name : {"llama", "qwen2", "qwen3", "gpt2", "qwen3_moe", "deepseek_v3"}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      FixtureModel fixture(name, dtype);
      const std::vector<Request> requests = fp8_requests(15, 40, fixture.model->shape().vocab_size);
      drafted += expect_own_bits(*fixture.model, fixture.weights, requests, 120, name);
    }
  }
  EXPECT_GT(drafted, 0);
}

// A model with random weights and the heads of large ones.
std::unique_ptr<Model> wide_model(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  const Json config{{"model_type", "qwen3"},
                    {"architectures", {"Qwen3ForCausalLM"}},
                    {"hidden_size", 256},
                    {"intermediate_size", 384},
                    {"num_hidden_layers", 2},
                    {"num_attention_heads", heads},
                    {"num_key_value_heads", kv_heads},
                    {"head_dim", head_dim},
                    {"vocab_size", 500},
                    {"max_position_embeddings", 512},
                    {"rms_norm_eps", 1e-6},
                    {"rope_theta", 10000.0},
                    {"initializer_range", 0.05},
                    {"tie_word_embeddings", false},
                    {"hidden_act", "silu"}};
  return family_registry().create(config);
}

// Several tiles of keys, and the kernels of large models on a GPU.
TEST(Fp8Cache, ARequestWithWideHeadsDependsOnItsTokensAlone) {
  struct Heads {
    std::int64_t heads, kv_heads, head_dim;
  };
  for (const Heads& h : {Heads{8, 2, 128}, Heads{7, 1, 64}}) {
    const std::unique_ptr<Model> model = wide_model(h.heads, h.kv_heads, h.head_dim);
    const TensorStore weights = random_weights(*model, 3, DType::kBf16, test_device());
    EXPECT_GT(expect_own_bits(*model, weights, fp8_requests(9, 200, 500), 450, text_of("heads of ", h.head_dim)), 0);
  }
}

// The most that a log-probability of a request's first token differs between the types, and the bytes of both.
TEST(Fp8Cache, DiffersByRoundingAndTakesHalfOfTheMemory) {
  const std::unique_ptr<Model> model = wide_model(8, 2, 64);
  const TensorStore weights = random_weights(*model, 3, DType::kBf16, test_device());
  std::vector<Request> requests = fp8_requests(12, 200, 500);
  for (Request& request : requests) request.sampling = {.temperature = 0, .max_tokens = 1};
  const EngineOptions options{.max_model_len = 450, .max_num_seqs = 12};
  const Tokenizer tokenizer = letter_tokenizer(8);
  Engine plain(*model, tokenizer, weights, std::make_shared<Arena>(test_device()), options);
  const std::vector<Completion> expected = plain.generate(requests);
  const Fp8Run run = run_fp8(*model, weights, requests, options);
  double most = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (run.completions[i].tokens != expected[i].tokens) continue;
    most = std::max(most, std::fabs(static_cast<double>(run.completions[i].logps[0] - expected[i].logps[0])));
  }
  EXPECT_GT(most, 0);
  EXPECT_LT(most, 0.1);
  // A byte for each number, and one for each head of 64. The store also has the tokens of the last step.
  EXPECT_NEAR(static_cast<double>(run.kv_bytes) / static_cast<double>(plain.kv_bytes()), 65.0 / 128, 1e-4);
}

TEST(Fp8Cache, ABlockTakesItsBytesAndScales) {
  FixtureModel fixture("qwen3", DType::kBf16);
  const ModelShape& s = fixture.model->shape();
  EngineOptions options = resolved({.max_model_len = 256, .max_num_seqs = 1024});
  options.kv_cache_dtype = KvCacheDtype::kFp8;
  EXPECT_EQ(static_cast<std::int64_t>(bytes_of_block(*fixture.model, DType::kBf16, options, test_device().kind())),
            options.block_size * s.num_hidden_layers * 2 * s.num_key_value_heads * (s.head_dim + 1));
}

TEST(Fp8Cache, IsRefusedWithLatentRows) {
  FixtureModel fixture("deepseek_v2");
  EXPECT_THAT(
      [&] { (void)fp8_engine(*fixture.model, fixture.weights, {.max_model_len = 16, .latent_kv_cache = true}); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("kv_cache_dtype: is fp8, but latent_kv_cache")));
}

}  // namespace
}  // namespace hone::test
