// Tests of tokens that the layer for multi-token prediction proposes: they change no result, and where the layer
// predicts what the model draws they are accepted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "core/random.h"
#include "engine/engine.h"
#include "model/fp8_model.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

template <class T>
void change_block(TensorStore& weights, const std::string& name, const auto& change) {
  const std::vector<std::byte> bytes = weights.download(name);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = T(change(i, static_cast<float>(values[i])));
  weights.upload(name, std::as_bytes(std::span(values)));
}

// A random deepseek_v3 with its layer for multi-token prediction, which passes on the embedding of the next token. The
// outputs of all layers are scaled by `mixing`: at 0 the next token depends on the last one only, and the layer
// predicts the token after it exactly; at more than 0 it is sometimes wrong.
struct PredictingModel {
  PredictingModel(DType dtype, float mixing)
      : model(family_registry().create(config())), weights([&] {
          EXPECT_TRUE(model->keep_predictions());
          return random_weights(*model, 4, dtype, test_device());
        }()) {
    const auto change = [&](const std::string& name, const auto& how) {
      if (dtype == DType::kF32) {
        change_block<float>(weights, name, how);
      } else {
        change_block<BFloat16>(weights, name, how);
      }
    };
    const auto hidden = static_cast<std::size_t>(model->shape().hidden_size);
    for (const WeightSpec& spec : model->weights()) {
      if (spec.name.ends_with("attention.out") || spec.name.ends_with("down")) {
        if (!spec.name.ends_with("kv_down") && !spec.name.ends_with("query_down"))
          change(spec.name, [&](std::size_t, float value) { return mixing * value; });
      }
      if (spec.name.ends_with("prediction.join"))
        change(spec.name, [&](std::size_t i, float) { return i % (2 * hidden) == i / (2 * hidden) ? 1.0F : 0.0F; });
    }
  }

  // Large weights and a small epsilon, so that a norm of a norm is the norm.
  static Json config() {
    Json config = ModelDirectory(fixture("models") / "deepseek_v3").config();
    config["initializer_range"] = 0.5;
    config["rms_norm_eps"] = 1e-6;
    return config;
  }

  std::unique_ptr<Model> model;
  TensorStore weights;
};

std::vector<Request> draft_requests(std::int64_t count, std::int64_t vocab) {
  const RandomStream random(31, "drafts");
  std::vector<Request> requests;
  std::uint64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Request request;
    const std::uint64_t length = 1 + random.below(at++, 30);
    for (std::uint64_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))));
    }
    request.sampling.temperature = i % 2 == 0 ? 0 : 0.8;
    request.sampling.max_tokens = 1 + (i * 7) % 40;
    request.sampling.logprobs = i % 4 == 1 ? 3 : 0;
    if (i % 5 == 2) request.sampling.frequency_penalty = 0.4;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

struct DraftRun {
  std::vector<Completion> completions;
  Engine::Statistics statistics;
};

DraftRun run_drafts(const Model& model, const TensorStore& weights, std::span<const Request> requests,
                    const EngineOptions& options) {
  const Tokenizer tokenizer = letter_tokenizer(model.shape().vocab_size);
  Engine engine(model, tokenizer, weights, std::make_shared<Arena>(test_device()), options);
  engine.prepare();  // changes no result
  EXPECT_EQ(engine.statistics().steps, 0);
  std::vector<Completion> completions = engine.generate(requests);
  return {std::move(completions), engine.statistics()};
}

void expect_same_completions_with_drafts(std::span<const Completion> completions,
                                         std::span<const Completion> expected) {
  ASSERT_EQ(completions.size(), expected.size());
  for (std::size_t i = 0; i < completions.size(); ++i) {
    ASSERT_EQ(completions[i].tokens, expected[i].tokens) << i;
    ASSERT_EQ(completions[i].logps, expected[i].logps) << i;
    ASSERT_EQ(completions[i].top_logprobs, expected[i].top_logprobs) << i;
    ASSERT_EQ(completions[i].text, expected[i].text) << i;
    ASSERT_EQ(completions[i].finish_reason, expected[i].finish_reason) << i;
  }
}

EngineOptions with_prediction(EngineOptions options) {
  options.num_speculative_tokens = 1;
  options.speculative_method = SpeculativeMethod::kMtp;
  return options;
}

TEST(PredictionDraft, ChangesNoBit) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const float mixing : {0.0F, 0.01F}) {
      const PredictingModel predicting(dtype, mixing);
      const Model& model = *predicting.model;
      std::vector<Request> requests = draft_requests(20, model.shape().vocab_size);
      const EngineOptions plain{
          .max_model_len = 96, .max_num_seqs = 20, .max_batch_tokens = 128, .adjust_logits = true, .max_logprobs = 3};
      for (std::size_t i = 0;
           const Completion& whole : run_drafts(model, predicting.weights, requests, plain).completions) {
        if (i % 4 == 3) requests[i].sampling.stop_token_ids = {whole.tokens[whole.tokens.size() / 2]};
        ++i;
      }
      const DraftRun expected = run_drafts(model, predicting.weights, requests, plain);
      const auto expect_same = [&](const EngineOptions& options, bool preempts) {
        const DraftRun run = run_drafts(model, predicting.weights, requests, with_prediction(options));
        expect_same_completions_with_drafts(run.completions, expected.completions);
        EXPECT_EQ(run.statistics.preemptions > 0, preempts);
        EXPECT_GT(run.statistics.accepted_tokens, 0);
        if (mixing > 0) {
          EXPECT_LT(run.statistics.accepted_tokens, run.statistics.drafted_tokens);
        }
      };
      expect_same(plain, false);
      EngineOptions latent = plain;
      latent.cache.latent_kv_cache = true;
      expect_same(latent, false);
      EngineOptions squeezed = plain;
      squeezed.max_num_seqs = 5;
      squeezed.max_batch_tokens = 9;
      squeezed.block_size = 4;
      squeezed.num_blocks = 26;
      expect_same(squeezed, true);
    }
  }
}

// Where the layer predicts exactly, at every temperature, a step gives two tokens.
TEST(PredictionDraft, AnExactPredictionHalvesTheSteps) {
  const PredictingModel predicting(DType::kF32, 0.0F);
  for (const double temperature : {0.0, 1.0}) {
    SCOPED_TRACE(temperature);
    const Request request{{3, 1, 4}, {.temperature = temperature, .max_tokens = 61, .seed = 9}};
    const DraftRun run = run_drafts(*predicting.model, predicting.weights, {&request, 1},
                                    with_prediction({.max_model_len = 96, .max_num_seqs = 2}));
    EXPECT_EQ(run.completions[0].tokens.size(), 61u);
    EXPECT_EQ(run.statistics.steps, 31);
    EXPECT_EQ(run.statistics.accepted_tokens, run.statistics.drafted_tokens);
    EXPECT_EQ(run.statistics.accepted_tokens, 30);
  }
}

TEST(PredictionDraft, WorksWithFp8Weights) {
  const PredictingModel predicting(DType::kBf16, 0.0F);
  std::unique_ptr<Model> base = family_registry().create(predicting.model->config());
  prepare_model(*base, {.num_speculative_tokens = 1, .speculative_method = SpeculativeMethod::kMtp});
  const Fp8Model model(std::move(base));
  const TemporaryDirectory folder;
  save_model(folder.path(), *predicting.model, predicting.weights, nullptr);
  const TensorStore weights = load_weights(model, ModelDirectory(folder.path()), DType::kBf16, test_device());
  const std::vector<Request> requests = draft_requests(6, model.shape().vocab_size);
  const EngineOptions plain{.max_model_len = 96, .max_num_seqs = 6, .adjust_logits = true, .max_logprobs = 3};
  const DraftRun run = run_drafts(model, weights, requests, with_prediction(plain));
  EXPECT_GT(run.statistics.accepted_tokens, 0);
  expect_same_completions_with_drafts(run.completions, run_drafts(model, weights, requests, plain).completions);
}

std::string draft_refusal(std::string_view name, std::int64_t tokens) {
  const std::unique_ptr<Model> model = family_registry().create(ModelDirectory(fixture("models") / name).config());
  try {
    prepare_model(*model, {.num_speculative_tokens = tokens, .speculative_method = SpeculativeMethod::kMtp});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PredictionDraft, IsRefusedWithoutTheLayer) {
  EXPECT_EQ(draft_refusal("deepseek_v3", 1), "no error");
  EXPECT_THAT(draft_refusal("deepseek_v3", 2),
              testing::HasSubstr("is 2, but speculative_method mtp proposes one token"));
  EXPECT_THAT(draft_refusal("deepseek_v3", 0),
              testing::HasSubstr("is 0, but speculative_method mtp proposes one token"));
  for (const std::string_view name : {"qwen3", "deepseek_v2"})
    EXPECT_THAT(draft_refusal(name, 1), testing::HasSubstr("no layer for multi-token prediction"));
}

}  // namespace
}  // namespace hone::test
