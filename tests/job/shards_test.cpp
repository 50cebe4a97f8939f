// Tests of the division of the optimizer's work over ranks.
#include "train/shards.h"

#include <gtest/gtest.h>

#include "core/json_value.h"
#include "model/registry.h"
#include "model/weight_layout.h"
#include "ops/adamw_8bit/adamw_8bit.h"
#include "ops/gradient_norm/gradient_norm.h"
#include "support/models.h"

namespace hone {
namespace {

TEST(UpdateShards, EveryRowHasOneOwnerAndSharesAreEven) {
  for (const std::string_view name : test::kFixtureModels) {
    const test::FixtureModel fixture(name);
    const Model* const model = fixture.model.get();
    for (const int ranks : {1, 2, 3, 8}) {
      const UpdateShards shards(*model, {}, ranks);
      std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks), 0);
      for (std::size_t i = 0; i < model->weights().size(); ++i) {
        const WeightSpec& spec = model->weights()[i];
        const std::int64_t row = row_elements(spec);
        std::int64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const RowRange rows = shards.rows_of(i, rank);
          ASSERT_GE(rows.count, 0);
          if (rows.count == 0) continue;
          EXPECT_EQ(rows.first, next) << spec.name;
          EXPECT_EQ(rows.first * row % kStateBlock, 0) << spec.name;
          next = rows.first + rows.count;
          elements[static_cast<std::size_t>(rank)] += rows.count * row;
        }
        EXPECT_EQ(next, spec.trainable ? spec.shape[0] : 0) << spec.name;
      }
    }
  }
}

TEST(UpdateShards, DividedGradientsBeginAtBlocksOfTheNormAndAreEven) {
  const std::unique_ptr<Model> model = family_registry().create(parse_json(
      R"({"model_type": "qwen2", "vocab_size": 5000, "hidden_size": 256, "intermediate_size": 1024,
          "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
          "rms_norm_eps": 1e-6, "tie_word_embeddings": false})",
      "model"));
  for (const UpdateRule rule : {UpdateRule::kAdamw, UpdateRule::kMuon}) {
    OptimizerOptions options;
    options.rule = rule;
    options.divided_gradients = true;
    constexpr int kRanks = 3;
    const UpdateShards shards(*model, options, kRanks);
    std::vector<std::int64_t> elements(kRanks, 0);
    std::int64_t whole = 0;
    for (std::size_t i = 0; i < model->weights().size(); ++i) {
      const std::int64_t row = row_elements(model->weights()[i]);
      std::int64_t next = 0;
      for (int rank = 0; rank < kRanks; ++rank) {
        const RowRange rows = shards.rows_of(i, rank);
        if (rows.count == 0) continue;
        EXPECT_EQ(rows.first, next);
        EXPECT_EQ(rows.first * row % kNormBlock, 0);
        next = rows.first + rows.count;
        elements[static_cast<std::size_t>(rank)] += rows.count * row;
      }
      EXPECT_EQ(next, model->weights()[i].shape[0]);
      whole += next * row;
    }
    for (const std::int64_t each : elements) {
      EXPECT_NEAR(static_cast<double>(each), static_cast<double>(whole) / kRanks, static_cast<double>(whole) * 0.05);
    }
  }
}

TEST(UpdateShards, StatesAreDividedAsTheirWeights) {
  const test::FixtureModel fixture("llama");
  OptimizerOptions options;
  std::size_t whole = 0;
  std::size_t divided = 0;
  std::size_t largest = 0;
  const auto bytes = [&] {
    return TensorStore::bytes_of(test::update_store(*fixture.model, DType::kF32, options, kOptimizerStore));
  };
  whole = bytes();
  options.ranks = 4;
  for (options.rank = 0; options.rank < 4; ++options.rank) {
    divided += bytes();
    largest = std::max(largest, bytes());
  }
  // Only the flag of non-finite gradients, and what aligns tensors, is there more than once.
  EXPECT_GE(divided, whole);
  EXPECT_LT(divided, whole + whole / 20);
  EXPECT_LT(largest, whole / 3);
}

}  // namespace
}  // namespace hone
