// Weights that are sent tensor by tensor: each has the bytes that a folder of the model has.
#include "model/sent_tensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/json_value.h"
#include "model/registry.h"
#include "model/small_configs.h"
#include "model/weights.h"
#include "support/paths.h"

namespace hone {
namespace {

using test::TemporaryDirectory;

std::vector<std::byte> sent(SentTensors& tensors, std::size_t index) {
  std::vector<std::byte> bytes(tensors.notices()[index].bytes());
  tensors.copy(index, bytes.data());
  return bytes;
}

std::vector<std::byte> bytes_of(const StoredTensor& tensor) { return {tensor.bytes.begin(), tensor.bytes.end()}; }

TEST(SentTensors, AreThoseOfAFolder) {
  for (const Json& config : {kQwen3, kGpt2, kMixtral}) {
    const std::unique_ptr<Model> model = family_registry().create(config);
    for (const DType held : {DType::kF32, DType::kBf16}) {
      const TensorStore weights = random_weights(*model, 3, held, cpu_device());
      const TemporaryDirectory folder;
      save_model(folder.path(), *model, weights, nullptr);
      const SafetensorsFile file(folder.path() / "model.safetensors");
      SentTensors tensors(*model, weights, cpu_device(), held == DType::kBf16);
      EXPECT_EQ(tensors.notices().size(), file.tensors().size());
      std::size_t in_place = 0;
      for (std::size_t i = 0; i < tensors.notices().size(); ++i) {
        const TensorNotice& notice = tensors.notices()[i];
        const StoredTensor& stored = file.at(notice.name);
        EXPECT_EQ(notice.shape, stored.shape) << notice.name;
        EXPECT_EQ(notice.type, stored.type) << notice.name;
        EXPECT_EQ(sent(tensors, i), bytes_of(stored)) << notice.name;
        const std::byte* place = tensors.in_place(i);
        if (place == nullptr) continue;
        ++in_place;
        EXPECT_EQ(std::memcmp(place, stored.bytes.data(), stored.bytes.size()), 0) << notice.name;
      }
      EXPECT_GT(in_place, tensors.notices().size() / 2);
    }
  }
}

TEST(SentTensors, AreRoundedForAServerOfBf16) {
  for (const Json& config : {kQwen3, kGpt2}) {
    const std::unique_ptr<Model> model = family_registry().create(config);
    const TensorStore weights = random_weights(*model, 3, DType::kF32, cpu_device());
    const TemporaryDirectory folder;
    save_model(folder.path(), *model, weights, nullptr);
    const TemporaryDirectory rounded;
    save_model(rounded.path(), *model, load_weights(*model, ModelDirectory(folder.path()), DType::kBf16, cpu_device()),
               nullptr);
    const SafetensorsFile file(rounded.path() / "model.safetensors");
    SentTensors tensors(*model, weights, cpu_device(), true);
    for (std::size_t i = 0; i < tensors.notices().size(); ++i) {
      EXPECT_EQ(tensors.notices()[i].type, StoredType::kBf16);
      EXPECT_EQ(tensors.in_place(i), nullptr);
      EXPECT_EQ(sent(tensors, i), bytes_of(file.at(tensors.notices()[i].name))) << tensors.notices()[i].name;
    }
  }
}

}  // namespace
}  // namespace hone
