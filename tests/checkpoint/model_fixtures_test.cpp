// Reads and saves the models of tests/fixtures/models, which transformers wrote, and compares the results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "checkpoint/model_directory.h"
#include "core/files.h"
#include "core/json_value.h"
#include "support/paths.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

void expect_same_model(const ModelDirectory& saved, const ModelDirectory& original) {
  EXPECT_EQ(saved.config(), original.config());
  ASSERT_NE(saved.generation_config(), nullptr);
  EXPECT_EQ(*saved.generation_config(), *original.generation_config());
  EXPECT_EQ(saved.weights().files().size(), original.weights().files().size());
  EXPECT_THAT(saved.weights().names(), testing::UnorderedElementsAreArray(original.weights().names()));
  for (const std::string& name : original.weights().names()) {
    const StoredTensor& ours = saved.weights().at(name);
    const StoredTensor& theirs = original.weights().at(name);
    EXPECT_EQ(ours.type, theirs.type) << name;
    EXPECT_EQ(ours.shape, theirs.shape) << name;
    EXPECT_TRUE(std::ranges::equal(ours.bytes, theirs.bytes)) << name;
  }
}

// scripts/check_parity.sh sets HONE_SAVE_MODELS_TO to a folder and then loads the saved models with transformers.
TEST(ModelFixtures, ComeBackAsTheyAre) {
  const test::TemporaryDirectory temporary;
  const char* wanted = std::getenv("HONE_SAVE_MODELS_TO");
  const fs::path folder = wanted != nullptr ? fs::path(wanted) : temporary.path();
  std::size_t sharded = 0;
  std::size_t single = 0;
  for (const auto& entry : fs::directory_iterator(test::fixture("models"))) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().string());
    const ModelDirectory original(entry.path());
    std::vector<TensorSource> sources;
    for (const SafetensorsFile& file : original.weights().files()) {
      for (const StoredTensor& tensor : file.tensors()) {
        sources.push_back(tensor_source(tensor.name, dtype_of(tensor.type).value(), tensor.shape, tensor.bytes));
      }
    }
    const bool has_shards = original.weights().files().size() > 1;
    const fs::path path = folder / entry.path().filename();
    write_model_directory(path, {.config = original.config(),
                                 .generation_config = original.generation_config(),
                                 .weights = sources,
                                 .max_shard_bytes = has_shards ? 150'000 : kDefaultShardBytes});
    expect_same_model(ModelDirectory(path), original);
    if (!has_shards) {
      EXPECT_EQ(read_file(path / "model.safetensors"), read_file(entry.path() / "model.safetensors"));
    }
    ++(has_shards ? sharded : single);
  }
  EXPECT_EQ(sharded, 3u);
  EXPECT_GE(single, 5u);
}

}  // namespace
}  // namespace hone
