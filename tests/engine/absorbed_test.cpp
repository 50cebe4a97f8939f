// Tests of absorbed attention to latent rows: what a request computes depends on its tokens alone, and differs from
// expanded attention, and from transformers, by rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "engine/engine.h"
#include "engine/generation_workspace.h"
#include "model/fp8_model.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

constexpr std::string_view kLatentModels[] = {"deepseek_v2", "deepseek_v2_grouped_tied", "deepseek_v3",
                                              "deepseek_v3_ungrouped_tied"};

// Requests of several lengths. Every third begins as the one before, and every third repeats itself, so that tokens are
// proposed.
std::vector<Request> absorbed_requests(std::int64_t count, std::int64_t vocab) {
  const RandomStream random(23, "absorbed attention");
  std::vector<Request> requests;
  std::uint64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Request request;
    if (i % 3 == 2) request.prompt = requests.back().prompt;
    const std::uint64_t length = 1 + random.below(at++, 40);
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

EngineOptions absorbed(EngineOptions options) {
  options.latent_kv_cache = true;
  options.latent_attention = LatentForm::kAbsorbed;
  return options;
}

struct AbsorbedRun {
  std::vector<Completion> completions;
  Engine::Statistics statistics;
};

AbsorbedRun run_once(const FixtureModel& fixture, std::span<const Request> requests, const EngineOptions& options) {
  static const Tokenizer tokenizer = letter_tokenizer(8);  // the tests read no text
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()), options);
  std::vector<Completion> completions = engine.generate(requests);
  return {std::move(completions), engine.statistics()};
}

void expect_absorbed(std::span<const Completion> completions, std::span<const Completion> expected,
                     std::string_view which) {
  ASSERT_EQ(completions.size(), expected.size());
  for (std::size_t i = 0; i < completions.size(); ++i) {
    ASSERT_EQ(completions[i].tokens, expected[i].tokens) << which << ", request " << i;
    ASSERT_EQ(completions[i].logps, expected[i].logps) << which << ", request " << i;
  }
}

// Alone, together, in chunks, preempted, with blocks that others have computed, with proposed tokens and ahead of the
// host.
TEST(AbsorbedAttention, ARequestDependsOnItsTokensAlone) {
  for (const std::string_view name : kLatentModels) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      FixtureModel fixture(name, dtype);
      const std::vector<Request> requests = absorbed_requests(15, fixture.model->shape().vocab_size);
      const EngineOptions wide = absorbed({.max_model_len = 120,
                                           .max_num_seqs = 15,
                                           .max_batch_tokens = 1024,
                                           .enable_prefix_caching = false,
                                           .launch_ahead = false});
      const AbsorbedRun expected = run_once(fixture, requests, wide);
      const auto expect_same = [&](const EngineOptions& options, std::string_view which) {
        const AbsorbedRun run = run_once(fixture, requests, absorbed(options));
        expect_absorbed(run.completions, expected.completions, text_of(name, ", ", which));
        return run.statistics;
      };
      EngineOptions alone = wide;
      alone.max_num_seqs = 1;
      expect_same(alone, "alone");
      EngineOptions squeezed{
          .max_model_len = 120, .max_num_seqs = 6, .max_batch_tokens = 9, .block_size = 4, .num_blocks = 34};
      for (const bool ahead : {false, true}) {
        squeezed.launch_ahead = ahead;
        const Engine::Statistics statistics = expect_same(squeezed, "squeezed");
        EXPECT_GT(statistics.preemptions, 0);
        EXPECT_GT(statistics.prefix_hit_tokens, 0);
      }
      const EngineOptions proposing{.max_model_len = 120, .max_num_seqs = 15, .num_speculative_tokens = 3};
      EXPECT_GT(expect_same(proposing, "with proposed tokens").drafted_tokens, 0);
    }
  }
}

// make_models.py chose prompts whose greedy tokens lead by 100 times the error of logits.
TEST(AbsorbedAttention, GreedyTokensAreThoseOfTransformers) {
  for (const std::string_view name : kLatentModels) {
    const FixtureModel fixture(name);
    const Request request{fixture.ids("prompt"), {.temperature = 0, .max_tokens = 64}};
    const EngineOptions options{.max_model_len = 128, .max_num_seqs = 2, .max_batch_tokens = 3};
    EXPECT_EQ(run_once(fixture, {&request, 1}, absorbed(options)).completions[0].tokens, fixture.ids("generated"))
        << name;
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
    const std::vector<Completion> results = run_once(fixture, requests, absorbed(options)).completions;
    const std::vector<Completion> expanded = run_once(fixture, requests, options).completions;
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
  FixtureModel fixture("deepseek_v2");
  const auto refuse = [](const Model& model, const EngineOptions& options) { check_model(options, model); };
  EngineOptions options = absorbed({.max_model_len = 16});
  EXPECT_NO_THROW(refuse(*fixture.model, options));
  EXPECT_THAT([&] { refuse(*FixtureModel("qwen3").model, options); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("this model has no latent attention")));
  EXPECT_THAT([&] { refuse(Fp8Model(std::move(FixtureModel("deepseek_v2").model)), options); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("latent_attention: is absorbed, but the weights are in FP8 (quantization)")));
  options.latent_kv_cache = false;
  EXPECT_THAT(
      [&] { refuse(*fixture.model, options); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("latent_attention: is absorbed, but latent_kv_cache is false")));
}

}  // namespace
}  // namespace hone::test
