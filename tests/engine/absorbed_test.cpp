// Tests of absorbed attention to latent rows: what a request computes depends on its tokens alone, and differs from
// expanded attention, and from transformers, by rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/cache_runs.h"
#include "engine/generation_workspace.h"
#include "model/fp8_model.h"
#include "support/error_text.h"
#include "support/models.h"

namespace hone::test {
namespace {

constexpr std::string_view kLatentModels[] = {"deepseek_v2", "deepseek_v2_grouped_tied", "deepseek_v3",
                                              "deepseek_v3_ungrouped_tied"};

constexpr CacheOptions kAbsorbed{.latent_kv_cache = true, .latent_attention = LatentForm::kAbsorbed};

EngineOptions absorbed(EngineOptions options) {
  options.cache = kAbsorbed;
  return options;
}

TEST(AbsorbedAttention, ARequestDependsOnItsTokensAlone) {
  for (const std::string_view name : kLatentModels) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const FixtureModel fixture(name, dtype);
      const std::vector<Request> requests =
          cache_requests(RandomStream(23, "absorbed attention"), 15, 40, fixture.model->shape().vocab_size);
      EXPECT_GT(expect_bits_of_tokens_alone(*fixture.model, fixture.weights, requests, 120, kAbsorbed, kAbsorbed,
                                            std::string(name)),
                0);
    }
  }
}

// make_models.py chose prompts whose greedy tokens lead by 100 times the error of logits.
TEST(AbsorbedAttention, GreedyTokensAreThoseOfTransformers) {
  for (const std::string_view name : kLatentModels) {
    const FixtureModel fixture(name);
    const Request request{fixture.ids("prompt"), {.temperature = 0, .max_tokens = 64}};
    const EngineOptions options{.max_model_len = 128, .max_num_seqs = 2, .max_batch_tokens = 3};
    const CacheRun run = run_cache(*fixture.model, fixture.weights, {&request, 1}, options, kAbsorbed);
    EXPECT_EQ(run.completions[0].tokens, fixture.ids("generated")) << name;
  }
}

// Log-probabilities of the documents' tokens, next to those that follow from transformers' logits and to those of
// expanded attention.
TEST(AbsorbedAttention, LogProbabilitiesAreThoseOfTransformersAndExpandedAttention) {
  for (const std::string_view name : kLatentModels) {
    const FixtureModel fixture(name);
    const std::vector<TokenId> ids = fixture.ids("input_ids");
    const std::vector<TokenId> bounds = fixture.ids("cu_seqlens");
    const auto logits = floats_of(fixture.reference.at("logits").bytes);
    const auto vocab = static_cast<std::size_t>(fixture.model->shape().vocab_size);
    std::vector<Request> requests;
    for (std::size_t d = 0; d + 1 < bounds.size(); ++d) {
      requests.push_back({{ids.begin() + bounds[d], ids.begin() + bounds[d + 1]},
                          {.temperature = 0, .prompt_logprobs = 0, .max_tokens = 1}});
    }
    const EngineOptions options{
        .max_model_len = 256, .max_num_seqs = 4, .max_batch_tokens = 7, .adjust_logits = true, .max_prompt_samples = 8};
    const auto run = [&](const CacheOptions& cache) {
      return run_cache(*fixture.model, fixture.weights, requests, options, cache).completions;
    };
    const std::vector<Completion> results = run(kAbsorbed);
    const std::vector<Completion> expanded = run({});
    double changed = 0;
    for (std::size_t d = 0; d < requests.size(); ++d) {
      ASSERT_EQ(results[d].prompt_logps.size(), requests[d].prompt.size() - 1);
      for (std::size_t t = 0; t < results[d].prompt_logps.size(); ++t) {
        const float* row = logits.data() + (static_cast<std::size_t>(bounds[d]) + t) * vocab;
        const double greatest = *std::max_element(row, row + vocab);
        double sum = 0;
        for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - greatest);
        const double expected = row[requests[d].prompt[t + 1]] - greatest - std::log(sum);
        const auto absorbed_logp = static_cast<double>(results[d].prompt_logps[t]);
        const auto expanded_logp = static_cast<double>(expanded[d].prompt_logps[t]);
        EXPECT_NEAR(absorbed_logp, expected, 1e-4) << name << ", document " << d << ", token " << t;
        EXPECT_NEAR(absorbed_logp, expanded_logp, 1e-4) << name << ", document " << d << ", token " << t;
        changed += std::abs(absorbed_logp - expanded_logp);
      }
    }
    EXPECT_GT(changed, 0) << name << ": both forms have the same bits";
  }
}

// Absorbed attention needs no room for keys and values.
TEST(AbsorbedAttention, ABlockTakesItsRowsOnly) {
  FixtureModel fixture("deepseek_v3", DType::kBf16);
  const ModelShape& s = fixture.model->shape();
  const EngineOptions options = absorbed(resolved({.max_model_len = 256, .max_num_seqs = 1024}));
  EXPECT_EQ(static_cast<std::int64_t>(bytes_of_block(*fixture.model, DType::kBf16, options, test_device().kind())),
            options.block_size * s.num_hidden_layers * s.latent_width * 2);
}

TEST(AbsorbedAttention, IsRefusedWhereItCannotBe) {
  const auto refusal = [](const Model& model, const CacheOptions& cache) {
    return error_text([&] { check_cache_and_drafts({.cache = cache}, model); });
  };
  const FixtureModel fixture("deepseek_v2");
  EXPECT_EQ(refusal(*fixture.model, kAbsorbed), "no error");
  EXPECT_THAT(refusal(*FixtureModel("qwen3").model, kAbsorbed),
              testing::HasSubstr("this model has no latent attention"));
  EXPECT_THAT(refusal(Fp8Model(std::move(FixtureModel("deepseek_v2").model)), kAbsorbed),
              testing::HasSubstr("latent_attention: is absorbed, but the weights are in FP8 (quantization)"));
  EXPECT_THAT(refusal(*fixture.model, {.latent_attention = LatentForm::kAbsorbed}),
              testing::HasSubstr("latent_attention: is absorbed, but latent_kv_cache is false"));
}

}  // namespace
}  // namespace hone::test
