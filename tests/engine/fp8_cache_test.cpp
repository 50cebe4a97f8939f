// Tests of a KV cache in FP8: what a request computes depends on its tokens alone, it differs from a cache of the
// model's type by rounding, and it takes half of the memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/json_value.h"
#include "engine/cache_runs.h"
#include "engine/generation_workspace.h"
#include "support/error_text.h"
#include "support/models.h"

namespace hone::test {
namespace {

constexpr CacheOptions kFp8Cache{.kv_cache_dtype = KvCacheDtype::kFp8};

TEST(Fp8Cache, ARequestDependsOnItsTokensAlone) {
  std::int64_t drafted = 0;
  for (const std::string_view name : {"llama", "qwen2", "qwen3", "gpt2", "qwen3_moe", "deepseek_v3"}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const FixtureModel fixture(name, dtype);
      const std::vector<Request> requests =
          cache_requests(RandomStream(22, "fp8 cache"), 15, 40, fixture.model->shape().vocab_size);
      drafted += expect_bits_of_tokens_alone(*fixture.model, fixture.weights, requests, 120, kFp8Cache, kFp8Cache,
                                             std::string(name));
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
    EXPECT_GT(expect_bits_of_tokens_alone(*model, weights, cache_requests(RandomStream(22, "fp8 cache"), 9, 200, 500),
                                          450, kFp8Cache, kFp8Cache, text_of("heads of ", h.head_dim)),
              0);
  }
}

// The most that a log-probability of a request's first token differs between the types, and the bytes of both.
TEST(Fp8Cache, DiffersByRoundingAndTakesHalfOfTheMemory) {
  const std::unique_ptr<Model> model = wide_model(8, 2, 64);
  const TensorStore weights = random_weights(*model, 3, DType::kBf16, test_device());
  std::vector<Request> requests = cache_requests(RandomStream(22, "fp8 cache"), 12, 200, 500);
  for (Request& request : requests) request.sampling = {.temperature = 0, .max_tokens = 1};
  const EngineOptions options{.max_model_len = 450, .max_num_seqs = 12};
  const CacheRun plain = run_cache(*model, weights, requests, options, {});
  const std::vector<Completion>& expected = plain.completions;
  const CacheRun run = run_cache(*model, weights, requests, options, kFp8Cache);
  double most = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (run.completions[i].tokens != expected[i].tokens) continue;
    most = std::max(most, std::fabs(static_cast<double>(run.completions[i].logps[0] - expected[i].logps[0])));
  }
  EXPECT_GT(most, 0);
  EXPECT_LT(most, 0.1);
  // A byte for each number, and one for each head of 64. The store also has the tokens of the last step.
  EXPECT_NEAR(static_cast<double>(run.kv_bytes) / static_cast<double>(plain.kv_bytes), 65.0 / 128, 1e-4);
}

TEST(Fp8Cache, ABlockTakesItsBytesAndScales) {
  FixtureModel fixture("qwen3", DType::kBf16);
  const ModelShape& s = fixture.model->shape();
  EngineOptions options = resolved({.max_model_len = 256, .max_num_seqs = 1024});
  options.cache = kFp8Cache;
  EXPECT_EQ(static_cast<std::int64_t>(bytes_of_block(*fixture.model, DType::kBf16, options, test_device().kind())),
            options.block_size * s.num_hidden_layers * 2 * s.num_key_value_heads * (s.head_dim + 1));
}

TEST(Fp8Cache, IsRefusedWithLatentRows) {
  const FixtureModel fixture("deepseek_v2");
  const CacheOptions both{.latent_kv_cache = true, .kv_cache_dtype = KvCacheDtype::kFp8};
  EXPECT_THAT(error_text([&] { (void)cache_engine(*fixture.model, fixture.weights, {.max_model_len = 16}, both); }),
              testing::HasSubstr("kv_cache_dtype: is fp8, but latent_kv_cache"));
}

}  // namespace
}  // namespace hone::test
