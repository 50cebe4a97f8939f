// Small models, compared with transformers: logits, loss, the gradient of every weight, greedy generation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/json_value.h"
#include "engine/engine.h"
#include "ops/linear/linear.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/loss_program.h"
#include "train/optimizer.h"

namespace hone::test {
namespace {

class Parity : public testing::TestWithParam<std::string_view> {};

// Returns the transpose of a matrix with `rows` rows.
std::vector<float> transposed(const std::vector<float>& values, std::int64_t rows) {
  const auto height = static_cast<std::size_t>(rows);
  const std::size_t width = values.size() / height;
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i % width * height + i / width] = values[i];
  return result;
}

TEST_P(Parity, Logits) {
  FixtureModel fixture(GetParam());
  const HostBatch batch = fixture.batch();
  Program program;
  DocumentBatch documents(program, capacity_of(batch));
  WeightBinder weights(program, fixture.model->weights(), false);
  const Tensor hidden = fixture.model->forward(weights, documents);
  program.output("logits", linear(hidden, weights(fixture.model->head())));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {.weights = &fixture.weights});
  feed(executable, batch);
  executable.run();
  const auto expected = read_values<float>(fixture.reference.at("logits"));
  std::vector<float> logits(expected.size());
  executable.get<float>("logits", logits);
  EXPECT_LE(relative_difference(logits, expected), 1e-4);
}

TEST_P(Parity, LossAndGradients) {
  FixtureModel fixture(GetParam());
  const HostBatch batch = fixture.batch();
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*fixture.model, fixture.weights, arena, {});
  Executable executable(trace_training(*fixture.model, {.capacity = capacity_of(batch)}), arena,
                        {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  const LossSums sums = run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens));
  const double expected_loss = static_cast<double>(read_values<float>(fixture.reference.at("loss"))[0]);
  EXPECT_LE(std::abs(sums.loss - expected_loss) / expected_loss, 1e-4);

  for (const WeightSpec& spec : fixture.model->weights()) {
    if (!spec.trainable) continue;
    const std::vector<std::byte> bytes = optimizer.gradients().download(spec.name);
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    const std::int64_t row = optimizer.gradients().type(spec.name).row_size();
    for (const WeightPart& part : spec.parts) {
      auto expected = read_values<float>(fixture.reference.at("gradient." + part.name));
      if (part.transposed) expected = transposed(expected, row);
      ASSERT_EQ(static_cast<std::int64_t>(expected.size()), part.rows * row);
      EXPECT_LE(relative_difference({values + part.row * row, expected.size()}, expected), 1e-3) << part.name;
    }
  }
}

TEST_P(Parity, GreedyGeneration) {
  FixtureModel fixture(GetParam());
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()),
                {.max_model_len = 128, .max_num_seqs = 4});
  const std::vector<TokenId> expected = fixture.ids("generated");
  Request request{fixture.ids("prompt"), {.temperature = 0, .max_tokens = static_cast<std::int64_t>(expected.size())}};
  const std::vector<Completion> completions = engine.generate({&request, 1});
  EXPECT_EQ(completions[0].tokens, expected);
}

// The folder that save_model() writes has the tensors that transformers wrote, so that transformers computes the same.
// scripts/check_parity.sh sets HONE_SAVE_LOADED_MODELS_TO to a folder and loads the saved models with transformers.
TEST_P(Parity, SavesWhatItHasLoaded) {
  FixtureModel fixture(GetParam());
  const TemporaryDirectory temporary;
  const char* wanted = std::getenv("HONE_SAVE_LOADED_MODELS_TO");
  const std::filesystem::path path =
      (wanted != nullptr ? std::filesystem::path(wanted) : temporary.path()) / std::string(GetParam());
  save_model(path, *fixture.model, fixture.weights, fixture.directory.generation_config());
  const ModelDirectory saved(path);
  EXPECT_EQ(saved.config(), fixture.directory.config());
  EXPECT_EQ(saved.weights().names().size(), fixture.directory.weights().names().size());
  for (const std::string& name : fixture.directory.weights().names()) {
    const StoredTensor& ours = saved.weights().at(name);
    const StoredTensor& theirs = fixture.directory.weights().at(name);
    EXPECT_EQ(ours.shape, theirs.shape) << name;
    EXPECT_TRUE(std::ranges::equal(ours.bytes, theirs.bytes)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Parity, testing::ValuesIn(kFixtureModels),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace hone::test
