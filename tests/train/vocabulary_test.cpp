// Models with fewer embedding rows than their tokenizer has tokens.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json_value.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

std::vector<float> floats(const TensorStore& store, std::string_view name) {
  const std::vector<std::byte> bytes = store.download(name);
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  return {values, values + bytes.size() / sizeof(float)};
}

TEST(Vocabulary, NewRowsAreTheMeanOfTheOldAndAllElseStays) {
  for (const char* name : {"llama", "qwen2_tied"}) {
    const FixtureModel fixture(name);
    Json config = fixture.model->config();
    const std::int64_t rows = fixture.model->shape().vocab_size;
    const std::int64_t width = fixture.model->shape().hidden_size;
    config["vocab_size"] = rows + 3;
    const std::unique_ptr<Model> larger = family_registry().create(config);
    EXPECT_THROW((void)load_weights(*larger, fixture.directory, DType::kF32, test_device()), Error);
    const TensorStore grown =
        load_weights(*larger, fixture.directory, DType::kF32, test_device(), Vocabulary::kMayGrow);
    int grew = 0;
    for (const NamedType& tensor : fixture.weights.tensors()) {
      const std::vector<float> before = floats(fixture.weights, tensor.name);
      const std::vector<float> after = floats(grown, tensor.name);
      ASSERT_GE(after.size(), before.size());
      EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin())) << tensor.name;
      if (after.size() == before.size()) continue;
      ++grew;
      ASSERT_EQ(after.size(), before.size() + static_cast<std::size_t>(3 * width)) << tensor.name;
      for (std::int64_t column = 0; column < width; ++column) {
        double mean = 0;
        for (std::int64_t row = 0; row < rows; ++row) mean += before[static_cast<std::size_t>(row * width + column)];
        mean /= static_cast<double>(rows);
        for (std::int64_t row = rows; row < rows + 3; ++row) {
          EXPECT_NEAR(after[static_cast<std::size_t>(row * width + column)], mean, 1e-7) << tensor.name;
        }
      }
    }
    EXPECT_EQ(grew, std::string(name) == "llama" ? 2 : 1) << "the embedding, and the head where it is its own";
  }
}

TEST(Vocabulary, GrowsInBf16Too) {
  const FixtureModel fixture("llama");
  Json config = fixture.model->config();
  config["vocab_size"] = fixture.model->shape().vocab_size + 1;
  const std::unique_ptr<Model> larger = family_registry().create(config);
  const TensorStore wide = load_weights(*larger, fixture.directory, DType::kF32, test_device(), Vocabulary::kMayGrow);
  const TensorStore grown = load_weights(*larger, fixture.directory, DType::kBf16, test_device(), Vocabulary::kMayGrow);
  const std::string head(larger->head());
  const std::vector<std::byte> bytes = grown.download(head);
  const auto* values = reinterpret_cast<const BFloat16*>(bytes.data());
  const std::vector<float> reference = floats(wide, head);
  for (std::size_t i = reference.size() - static_cast<std::size_t>(larger->shape().hidden_size); i < reference.size();
       ++i) {
    EXPECT_NEAR(static_cast<float>(values[i]), reference[i], 0.01 * std::abs(reference[i]) + 1e-4);
  }
}

}  // namespace
}  // namespace hone::test
