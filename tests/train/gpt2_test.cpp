// Properties of GPT-2 that other families lack: projections stored as [in, out], folders without the prefix of the
// head, a fixed number of positions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json_value.h"
#include "engine/engine.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

void expect_same_weights(const TensorStore& a, const TensorStore& b) {
  for (const NamedType& tensor : b.tensors())
    EXPECT_EQ(a.download(tensor.name), b.download(tensor.name)) << tensor.name;
}

TEST(Gpt2, SavesTheTensorsThatItRead) {
  for (const char* name : {"gpt2", "gpt2_exact_gelu"}) {
    const FixtureModel fixture(name);
    const TemporaryDirectory folder;
    save_model(folder.path(), *fixture.model, fixture.weights, nullptr);
    const ModelDirectory saved(folder.path());
    std::vector<std::string> names = saved.weights().names();
    std::vector<std::string> expected = fixture.directory.weights().names();
    std::sort(names.begin(), names.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(names, expected);
    for (const std::string& tensor : expected) {
      const StoredTensor& ours = saved.weights().at(tensor);
      const StoredTensor& theirs = fixture.directory.weights().at(tensor);
      EXPECT_EQ(ours.shape, theirs.shape) << tensor;
      EXPECT_TRUE(std::ranges::equal(ours.bytes, theirs.bytes)) << tensor;
    }
    expect_same_weights(load_weights(*fixture.model, saved, DType::kF32, test_device()), fixture.weights);
  }
}

// Folders of the first GPT-2 models have no prefix "transformer." and contain the attention mask as a tensor.
TEST(Gpt2, ReadsAFolderOfTheBareModel) {
  const FixtureModel fixture("gpt2");
  const TemporaryDirectory folder;
  const std::vector<std::byte> mask(4);
  std::vector<TensorSource> sources{tensor_source("h.0.attn.bias", DType::kF32, {1, 1, 1, 1}, mask)};
  for (const std::string& name : fixture.directory.weights().names()) {
    const StoredTensor& tensor = fixture.directory.weights().at(name);
    sources.push_back(
        tensor_source(name.substr(std::string("transformer.").size()), DType::kF32, tensor.shape, tensor.bytes));
  }
  write_model_directory(folder.path(), {.config = fixture.directory.config(), .weights = sources});
  const ModelDirectory bare(folder.path());
  expect_same_weights(load_weights(*fixture.model, bare, DType::kF32, test_device()), fixture.weights);
}

TEST(Gpt2, AVocabularyGrows) {
  const FixtureModel fixture("gpt2");
  Json config = fixture.model->config();
  config["vocab_size"] = fixture.model->shape().vocab_size + 2;
  const std::unique_ptr<Model> larger = family_registry().create(config);
  const TensorStore grown = load_weights(*larger, fixture.directory, DType::kF32, test_device(), Vocabulary::kMayGrow);
  for (const NamedType& tensor : fixture.weights.tensors()) {
    const std::vector<std::byte> before = fixture.weights.download(tensor.name);
    const std::vector<std::byte> after = grown.download(tensor.name);
    EXPECT_EQ(after.size() > before.size(), tensor.name == "embedding");
    EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin())) << tensor.name;
  }
}

// Rotary embeddings are defined at every position, but the model was trained on max_position_embeddings of them; this
// number includes the effect of rope scaling.
TEST(Positions, BeyondThoseOfTheModelAreRefused) {
  for (const char* name : {"gpt2", "qwen2", "llama3_rope"}) {
    const FixtureModel fixture(name);
    const ModelShape& shape = fixture.model->shape();
    EXPECT_NO_THROW(check_positions(shape, 256, "block_size"));
    try {
      check_positions(shape, 257, "block_size");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  testing::StartsWith("block_size: sequences of up to 257 tokens, but the model has 256 positions "
                                      "(max_position_embeddings) (at most 256"));
    }
    const Tokenizer tokenizer = letter_tokenizer(shape.vocab_size);
    EXPECT_THROW(Engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()),
                        {.max_model_len = 257, .max_num_seqs = 1}),
                 Error);
  }
}

TEST(Gpt2, HasNoMorePositionsThanItsTable) {
  const FixtureModel fixture("gpt2");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  const auto engine = [&](std::int64_t length) {
    Engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()),
           {.max_model_len = length, .max_num_seqs = 1});
  };
  EXPECT_NO_THROW(engine(256));
  EXPECT_THROW(engine(257), Error);
  EXPECT_THROW(check_positions(fixture.model->shape(), 257, "block_size"), Error);
}

TEST(Gpt2, InitialWeightsOfTheResidualStreamAreSmaller) {
  const FixtureModel fixture("gpt2");
  const TensorStore weights = random_weights(*fixture.model, 1, DType::kF32, test_device());
  const auto deviation = [&](const char* name) {
    const std::vector<std::byte> bytes = weights.download(name);
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    double squares = 0;
    for (std::size_t i = 0; i < bytes.size() / sizeof(float); ++i) squares += values[i] * values[i];
    return std::sqrt(squares / static_cast<double>(bytes.size() / sizeof(float)));
  };
  EXPECT_NEAR(deviation("layers.0.mlp.up"), 0.02, 0.0005);
  EXPECT_NEAR(deviation("layers.0.mlp.down"), 0.01, 0.0003);  // two layers: 0.02 / sqrt(4)
}

TEST(Gpt2, RefusesWhatItDoesNotKnow) {
  const FixtureModel fixture("gpt2");
  const auto with = [&](const char* key, const Json& value) {
    Json config = fixture.model->config();
    config[key] = value;
    (void)family_registry().create(config);
  };
  EXPECT_NO_THROW(with("activation_function", "gelu_pytorch_tanh"));
  EXPECT_THROW(with("activation_function", "relu"), Error);
  EXPECT_THROW(with("scale_attn_by_inverse_layer_idx", true), Error);
  EXPECT_THROW(with("n_head", 3), Error);
  EXPECT_THROW(with("resid_pdrop", 1), Error);
}

}  // namespace
}  // namespace hone::test
