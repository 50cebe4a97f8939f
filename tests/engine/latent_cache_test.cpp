// Tests of a KV cache of latent rows: it holds less, and changes no bit of a result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/cache_runs.h"
#include "engine/generation_workspace.h"
#include "support/error_text.h"
#include "support/models.h"

namespace hone::test {
namespace {

constexpr CacheOptions kLatent{.latent_kv_cache = true};

TEST(LatentCache, ChangesNoBit) {
  for (const std::string_view name : {"deepseek_v2", "deepseek_v3"}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const FixtureModel fixture(name, dtype);
      const std::vector<Request> requests =
          cache_requests(RandomStream(21, "latent rows"), 21, 40, fixture.model->shape().vocab_size);
      EXPECT_GT(
          expect_bits_of_tokens_alone(*fixture.model, fixture.weights, requests, 120, kLatent, {}, std::string(name)),
          0);
    }
  }
}

// A token takes a latent row of each layer in place of keys and values of all heads.
TEST(LatentCache, TakesAShareOfTheMemory) {
  const FixtureModel fixture("deepseek_v3", DType::kBf16);
  const ModelShape& s = fixture.model->shape();
  const auto bytes = [&](const CacheOptions& cache) {
    const EngineOptions options{.max_model_len = 120, .max_num_seqs = 21};
    return static_cast<double>(cache_engine(*fixture.model, fixture.weights, options, cache)->kv_bytes());
  };
  const double share =
      static_cast<double>(s.latent_width) / static_cast<double>(2 * s.num_attention_heads * s.head_dim);
  EXPECT_NEAR(bytes(kLatent) / bytes({}), share, 0.01 * share);
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
  options.cache.latent_kv_cache = true;
  const std::int64_t rows = options.block_size * s.num_hidden_layers * s.latent_width * 2;
  EXPECT_GT(bytes(), rows + options.block_size * 2 * keys * 2);
  EXPECT_LT(bytes(), rows + options.block_size * 5 * keys * 2);
}

TEST(LatentCache, IsRefusedWhereItCannotBe) {
  const auto refusal = [](std::string_view name, const EngineOptions& options) {
    const FixtureModel fixture(name);
    return error_text([&] { (void)cache_engine(*fixture.model, fixture.weights, options, kLatent); });
  };
  EXPECT_EQ(refusal("deepseek_v2", {.max_model_len = 16}), "no error");
  EXPECT_THAT(refusal("qwen3", {.max_model_len = 16}),
              testing::HasSubstr("latent_kv_cache: is true, but this model has no latent attention"));
  EXPECT_THAT(refusal("deepseek_v2", {.max_model_len = 16, .adapter_slots = 2}),
              testing::HasSubstr("latent_kv_cache: is true, but adapters by name (2 slots)"));
}

}  // namespace
}  // namespace hone::test
