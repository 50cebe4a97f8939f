// Tests that a new model family needs no change of existing files: it trains, is saved and loaded, and generates.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json_value.h"
#include "engine/engine.h"
#include "example/registrations.h"
#include "program/text.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/loss_program.h"
#include "train/optimizer.h"

namespace hone::test {
namespace {

Json toy_config() {
  return {{"model_type", "toy"},      {"vocab_size", 40}, {"hidden_size", 32},        {"num_hidden_layers", 2},
          {"num_attention_heads", 2}, {"head_dim", 16},   {"initializer_range", 0.1}, {"max_position_embeddings", 64}};
}

std::unique_ptr<Model> toy_model() {
  register_example();
  FamilyRegistry registry;
  register_toy(registry);
  return registry.create(toy_config());
}

HostBatch toy_batch() {
  const std::vector<std::vector<TokenId>> documents{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 8, 7, 6, 5}, {3, 1, 3, 1, 3, 1}};
  return batch_of(documents);
}

std::vector<double> train_steps(const Model& model, TensorStore& weights, Recompute recompute, int steps) {
  const HostBatch batch = toy_batch();
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(model, weights, arena, {});
  Executable executable(trace_training(model, {.capacity = {batch.token_count(), batch.document_count()},
                                               .compile = {.recompute = recompute}}),
                        arena, {.weights = &weights, .gradients = &optimizer.gradients()});
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    losses.push_back(run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens)).loss);
    optimizer.update(1e-2, 1.0);
  }
  return losses;
}

TEST(ToyFamily, Trains) {
  const std::unique_ptr<Model> model = toy_model();
  TensorStore weights = random_weights(*model, 1, DType::kF32, test_device());
  const std::vector<double> losses = train_steps(*model, weights, Recompute::kNone, 20);
  EXPECT_GT(losses.front(), 2.0);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
  TensorStore again = random_weights(*model, 1, DType::kF32, test_device());
  EXPECT_EQ(train_steps(*model, again, Recompute::kLayers, 20), losses);
}

TEST(ToyFamily, ItsProgramsAreText) {
  const Program program = trace_training(*toy_model(), {.capacity = {16, 2}, .compile = {.dtype = DType::kBf16}});
  const std::string text = to_text(program);
  EXPECT_NE(text.find(" = toy_square("), std::string::npos);
  EXPECT_NE(text.find(" = toy_square_backward("), std::string::npos);
  EXPECT_NE(text.find("{factor=0.5} @layers.1.mlp backward"), std::string::npos);
  EXPECT_EQ(to_text(program_from_text(text)), text);
}

TEST(ToyFamily, IsSavedAndLoaded) {
  const std::unique_ptr<Model> model = toy_model();
  const TensorStore weights = random_weights(*model, 2, DType::kF32, test_device());
  const TemporaryDirectory folder;
  save_model(folder.path() / "toy", *model, weights, nullptr);
  const TensorStore loaded = load_weights(*model, ModelDirectory(folder.path() / "toy"), DType::kF32, test_device());
  for (const NamedType& tensor : weights.tensors()) {
    EXPECT_EQ(loaded.download(tensor.name), weights.download(tensor.name)) << tensor.name;
  }
}

TEST(ToyFamily, GeneratesWhatItLearned) {
  const std::unique_ptr<Model> model = toy_model();
  TensorStore weights = random_weights(*model, 1, DType::kF32, test_device());
  (void)train_steps(*model, weights, Recompute::kNone, 60);
  const Tokenizer tokenizer = letter_tokenizer(model->shape().vocab_size);
  Engine engine(*model, tokenizer, weights, std::make_shared<Arena>(test_device()), {.max_model_len = 32});
  const Request request{{1, 2, 3}, {.temperature = 0, .max_tokens = 5}};
  EXPECT_EQ(engine.generate({&request, 1})[0].tokens, (std::vector<TokenId>{4, 5, 6, 7, 8}));
}

TEST(ToyFamily, WrongConfigurationsAreNamed) {
  FamilyRegistry registry;
  register_toy(registry);
  Json config = toy_config();
  config.erase("head_dim");
  try {
    (void)registry.create(config);
    FAIL() << "head_dim is missing";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("head_dim"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hone::test
