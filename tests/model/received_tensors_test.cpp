// Weights that arrive tensor by tensor under the names of a checkpoint: the blocks are those of loading its folder.
#include "model/received_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/json_value.h"
#include "model/fp8_model.h"
#include "model/registry.h"
#include "model/small_configs.h"
#include "model/weight_tensors.h"
#include "model/weights.h"
#include "support/paths.h"

namespace hone {
namespace {

using test::TemporaryDirectory;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Sends the tensors of a file to a store of zeros, the names without `prefix`, and returns it.
TensorStore received(const Model& model, const SafetensorsFile& file, DType dtype, const std::string& prefix = {}) {
  TensorStore store(cpu_device(), weight_types(model, dtype));
  ReceivedTensors tensors(model);
  EXPECT_FALSE(tensors.has_all());
  for (const StoredTensor& tensor : file.tensors()) {
    EXPECT_FALSE(tensors.has_all()) << tensor.name;
    const std::string name = tensor.name.starts_with(prefix) ? tensor.name.substr(prefix.size()) : tensor.name;
    const TensorNotice notice{name, tensor.type, tensor.shape};
    EXPECT_EQ(notice.bytes(), tensor.bytes.size());
    tensors.check(notice);
    tensors.load(notice, tensor.bytes.data(), store);
  }
  EXPECT_TRUE(tensors.has_all());
  return store;
}

void expect_equal(const TensorStore& seen, const TensorStore& expected) {
  for (const NamedType& tensor : expected.tensors()) {
    EXPECT_EQ(seen.download(tensor.name), expected.download(tensor.name)) << tensor.name;
  }
}

TEST(ReceivedTensors, BecomeTheBlocksThatTheirFolderGives) {
  for (const Json& config : {kQwen3, kGpt2, kMixtral}) {
    const std::unique_ptr<Model> model = family_registry().create(config);
    for (const DType sent : {DType::kF32, DType::kBf16}) {
      const TemporaryDirectory folder;
      save_model(folder.path(), *model, random_weights(*model, 3, sent, cpu_device()), nullptr);
      const SafetensorsFile file(folder.path() / "model.safetensors");
      for (const DType held : {DType::kF32, DType::kBf16}) {
        const TensorStore expected = load_weights(*model, ModelDirectory(folder.path()), held, cpu_device());
        expect_equal(received(*model, file, held), expected);
      }
    }
  }
}

TEST(ReceivedTensors, MayLackTheBasePrefix) {
  const std::unique_ptr<Model> model = family_registry().create(kGpt2);
  ASSERT_FALSE(model->base_prefix().empty());
  const TemporaryDirectory folder;
  const TensorStore weights = random_weights(*model, 3, DType::kF32, cpu_device());
  save_model(folder.path(), *model, weights, nullptr);
  const SafetensorsFile file(folder.path() / "model.safetensors");
  expect_equal(received(*model, file, DType::kF32, std::string(model->base_prefix())), weights);
}

TEST(ReceivedTensors, ExpertsMayComeMerged) {
  const std::unique_ptr<Model> model = family_registry().create(kMixtral);
  const TensorStore weights = random_weights(*model, 3, DType::kF32, cpu_device());
  std::vector<WeightSpec> specs = model->weights();
  for (WeightSpec& spec : specs) {
    for (WeightPart& part : spec.parts) {
      if (!part.alternative.tensor.empty()) part.source = part.alternative;
    }
  }
  const TemporaryDirectory folder;
  write_safetensors(folder.path() / "merged.safetensors", weight_sources(specs, true, weights), {});
  expect_equal(received(*model, SafetensorsFile(folder.path() / "merged.safetensors"), DType::kF32), weights);
}

TEST(ReceivedTensors, AreQuantizedAsTheirFolderIs) {
  Json config = kQwen3;
  config["hidden_size"] = 256;
  config["intermediate_size"] = 256;
  const std::unique_ptr<Model> plain = family_registry().create(config);
  const TemporaryDirectory folder;
  save_model(folder.path(), *plain, random_weights(*plain, 3, DType::kBf16, cpu_device()), nullptr);
  const Fp8Model model(family_registry().create(config));
  const TensorStore expected = load_weights(model, ModelDirectory(folder.path()), DType::kBf16, cpu_device());
  expect_equal(received(model, SafetensorsFile(folder.path() / "model.safetensors"), DType::kBf16), expected);
}

TEST(ReceivedTensors, OfOneBufferAreThoseThatComeOneByOne) {
  const std::unique_ptr<Model> model = family_registry().create(kQwen3);
  const TensorStore weights = random_weights(*model, 3, DType::kF32, cpu_device());
  const TemporaryDirectory folder;
  save_model(folder.path(), *model, weights, nullptr);
  const SafetensorsFile file(folder.path() / "model.safetensors");
  std::vector<TensorNotice> notices;
  std::vector<std::byte> packed;
  for (const StoredTensor& tensor : file.tensors()) {
    notices.push_back({tensor.name, tensor.type, tensor.shape});
    packed.insert(packed.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  EXPECT_EQ(bytes_of(notices), packed.size());
  TensorStore store(cpu_device(), weight_types(*model, DType::kF32));
  ReceivedTensors tensors(*model);
  tensors.load_all(notices, packed.data(), store);
  EXPECT_TRUE(tensors.has_all());
  expect_equal(store, weights);
}

TEST(TensorNotices, HaveBytesThatDoNotOverflow) {
  constexpr std::int64_t kExtent = std::int64_t{1} << 30;
  const TensorNotice small{"small", StoredType::kBf16, {3, 5}};
  const TensorNotice large{"large", StoredType::kF32, {kExtent, kExtent, 3}};  // 12 x 2^60 bytes
  EXPECT_EQ(bytes_of({}), 0);
  EXPECT_EQ(bytes_of(std::vector{small, small, small}), 90);
  EXPECT_EQ(bytes_of(std::vector{large, small}), (std::size_t{12} << 60) + 30);
  EXPECT_EQ(bytes_of(std::vector{large, large, small}), std::numeric_limits<std::size_t>::max());
}

// As vLLM's trainers pack: the tensor that exceeds the limit is the last of its buffer.
TEST(TensorNotices, ArePackedUpToTheFirstThatExceedsTheLimit) {
  const std::vector<TensorNotice> notices(5, {"thirty", StoredType::kBf16, {3, 5}});
  EXPECT_EQ(packed_count({}, 100), 0);
  EXPECT_EQ(packed_count(notices, 0), 1);
  EXPECT_EQ(packed_count(notices, 29), 1);
  EXPECT_EQ(packed_count(notices, 30), 2);
  EXPECT_EQ(packed_count(notices, 89), 3);
  EXPECT_EQ(packed_count(notices, 90), 4);
  EXPECT_EQ(packed_count(notices, 1000), 5);
}

TEST(TensorStaging, GrowsAndKeepsWhatIsLargeEnough) {
  Device& device = cpu_device();
  const std::size_t others = device.allocated_bytes();
  TensorStaging staging;
  EXPECT_EQ(staging.room_for(0, device), nullptr);
  std::byte* const first = staging.room_for(64, device);
  std::fill_n(first, 64, std::byte{1});
  EXPECT_EQ(staging.room_for(16, device), first);
  EXPECT_EQ(staging.room_for(64, device), first);
  EXPECT_EQ(device.allocated_bytes(), others + 64);
  constexpr std::size_t kMore = std::size_t{1} << 20;
  std::byte* const grown = staging.room_for(kMore, device);
  std::fill_n(grown, kMore, std::byte{2});  // all of it is memory
  EXPECT_EQ(staging.room_for(65, device), grown);
  EXPECT_EQ(device.allocated_bytes(), others + kMore) << "the first has been given back";
  EXPECT_THROW((void)staging.room_for(std::numeric_limits<std::size_t>::max(), device), Error);
  EXPECT_EQ(device.allocated_bytes(), others) << "given back before more is taken";
  (void)staging.room_for(16, device);
  staging.release();
  EXPECT_EQ(device.allocated_bytes(), others);
}

// More numbers than a piece, at addresses without alignment.
TEST(ReceivedTensors, AreConvertedInPieces) {
  const std::size_t count = (std::size_t{1} << 22) + 5;
  std::vector<float> values(1 + count);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0f + static_cast<float>(i) * 0x1p-20f;
  std::vector<BFloat16> narrowed(1 + count);
  DeviceCast(cpu_device(), DType::kF32, DType::kBf16)
      .run(reinterpret_cast<const std::byte*>(&values[1]), reinterpret_cast<std::byte*>(&narrowed[1]), count);
  for (std::size_t i = 1; i < values.size(); ++i) ASSERT_EQ(narrowed[i].bits, BFloat16(values[i]).bits) << i;
  EXPECT_EQ(narrowed[0].bits, 0);
}

TEST(ReceivedTensors, RefuseWhatTheModelDoesNotHave) {
  const std::unique_ptr<Model> model = family_registry().create(kQwen3);
  const ReceivedTensors tensors(*model);
  const auto check = [&](const std::string& name, StoredType type, std::vector<std::int64_t> shape) {
    return [&tensors, notice = TensorNotice{name, type, std::move(shape)}] { tensors.check(notice); };
  };
  const auto refuses = [](const std::string& text) { return ThrowsMessage<Error>(HasSubstr(text)); };
  EXPECT_NO_THROW(check("model.norm.weight", StoredType::kBf16, {16})());
  EXPECT_NO_THROW(check("lm_head.weight", StoredType::kBf16, {30, 16})()) << "tied";
  EXPECT_THAT(check("model.norm", StoredType::kBf16, {16}), refuses("is not a tensor of the model"));
  EXPECT_THAT(check("model.norm.weight", StoredType::kBf16, {17}), refuses("is [17], but the model has [16]"));
  EXPECT_THAT(check("model.norm.weight", StoredType::kI32, {16}), refuses("has the type I32"));
  EXPECT_THAT(check("lm_head.weight", StoredType::kBf16, {1 << 30, 1 << 30, 1 << 30}), refuses("has the shape"));
}

}  // namespace
}  // namespace hone
