// Tests of embeddings: they equal transformers', and depend on their input only.
#include "engine/embedder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/json_value.h"
#include "core/random.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using Inputs = std::vector<std::vector<TokenId>>;

Embedder embedder_of(const FixtureModel& fixture, const EmbedderOptions& options) {
  return {*fixture.model, fixture.weights, std::make_shared<Arena>(test_device()), options};
}

Inputs many_inputs(std::int64_t count, std::int64_t vocab, std::uint64_t longest) {
  const RandomStream random(7, "inputs");
  Inputs inputs(static_cast<std::size_t>(count));
  std::uint64_t at = 0;
  for (auto& input : inputs) {
    const std::uint64_t length = 1 + random.below(at++, longest);
    for (std::uint64_t t = 0; t < length; ++t)
      input.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))));
  }
  return inputs;
}

// make_embeddings.py has written what transformers computes.
TEST(Embedder, EqualsTransformers) {
  const Json file = read_json(fixture("models/embeddings.json"));
  ASSERT_GE(file.at("cases").size(), 6U);
  for (const Json& one : file.at("cases")) {
    const auto name = one.at("model").get<std::string>();
    FixtureModel fixture(name);
    const auto inputs = one.at("inputs").get<Inputs>();
    for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
      const auto expected = one.at(pooling == Pooling::kLast ? "last" : "mean").get<std::vector<std::vector<double>>>();
      const auto embeddings =
          embedder_of(fixture, {.pooling = pooling, .max_model_len = 64, .max_batch_tokens = 24}).embed(inputs);
      ASSERT_EQ(embeddings.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(embeddings[i].size(), expected[i].size());
        for (std::size_t k = 0; k < expected[i].size(); ++k)
          EXPECT_NEAR(static_cast<double>(embeddings[i][k]), expected[i][k], 1e-5) << name << " " << i << " " << k;
      }
    }
  }
}

TEST(Embedder, EmbeddingsDependOnTheInputAlone) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    FixtureModel fixture("qwen3", dtype);
    const Inputs inputs = many_inputs(80, fixture.model->shape().vocab_size, 60);
    for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
      const auto together =
          embedder_of(fixture, {.pooling = pooling, .max_model_len = 64, .max_batch_tokens = 256}).embed(inputs);
      // Small steps, blocks of another size, and so few blocks that inputs wait.
      const auto squeezed =
          embedder_of(fixture, {.pooling = pooling, .max_model_len = 64, .max_batch_tokens = 7, .block_size = 1})
              .embed(inputs);
      EXPECT_EQ(together, squeezed);
      Embedder alone = embedder_of(fixture, {.pooling = pooling, .max_model_len = 64});
      for (std::size_t i = 0; i < inputs.size(); i += 9) EXPECT_EQ(alone.embed({inputs[i]})[0], together[i]) << i;
      for (const auto& embedding : together) {
        double squares = 0;
        for (const float value : embedding) squares += static_cast<double>(value) * static_cast<double>(value);
        EXPECT_NEAR(squares, 1, 1e-5);
      }
    }
  }
}

TEST(Embedder, BeginsAgain) {
  FixtureModel fixture("qwen3");
  const Inputs inputs = many_inputs(20, fixture.model->shape().vocab_size, 60);
  Embedder embedder = embedder_of(fixture, {.pooling = Pooling::kMean, .max_model_len = 64, .max_batch_tokens = 16});
  const auto expected = embedder.embed(inputs);
  for (int steps = 0; steps < 12; ++steps) {
    embedder.start(inputs);
    for (int i = 0; i < steps; ++i) EXPECT_TRUE(embedder.step());
    EXPECT_EQ(embedder.embed(inputs), expected);
  }
}

}  // namespace
}  // namespace hone::test
