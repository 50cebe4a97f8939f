// DeepSeek's families: tensors of a checkpoint that are left out, and the biases of the experts, which are not trained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/loss_program.h"
#include "train/optimizer.h"

namespace hone::test {
namespace {

constexpr const char* kBias = "model.layers.1.mlp.gate.e_score_correction_bias";

// Writes a fixture model with additional tensors of one element each.
void write_with_tensors(const std::filesystem::path& path, std::string_view fixture_name, const Json& config,
                        const std::vector<std::string>& additional) {
  const ModelDirectory original(fixture("models") / fixture_name);
  std::vector<TensorSource> sources;
  for (const SafetensorsFile& file : original.weights().files()) {
    for (const StoredTensor& tensor : file.tensors()) {
      sources.push_back(tensor_source(tensor.name, dtype_of(tensor.type).value(), tensor.shape, tensor.bytes));
    }
  }
  const float one = 1.0f;
  for (const std::string& name : additional) sources.push_back(tensor_source<float>(name, {1}, {&one, 1}));
  write_model_directory(path, {.config = config, .generation_config = nullptr, .weights = sources});
}

Json config_of(std::string_view fixture_name) { return ModelDirectory(fixture("models") / fixture_name).config(); }

// Loads the folder. Returns what was written to standard error, or the error.
std::string loading(const std::filesystem::path& path) {
  const ModelDirectory directory(path);
  const std::unique_ptr<Model> model = family_registry().create(directory.config());
  testing::internal::CaptureStderr();
  try {
    (void)load_weights(*model, directory, DType::kF32, test_device());
  } catch (const Error& error) {
    (void)testing::internal::GetCapturedStderr();
    return error.what();
  }
  return testing::internal::GetCapturedStderr();
}

TEST(Deepseek, LoadingLeavesOutLayersForMultiTokenPredictionOnly) {
  using testing::HasSubstr;
  const TemporaryDirectory folder;
  const auto path = [&](const char* name) { return folder.path() / name; };
  const Json config = config_of("deepseek_v3");  // three layers, and one of prediction
  write_with_tensors(path("one"), "deepseek_v3", config,
                     {"model.layers.3.enorm.weight", "model.layers.3.mlp.experts.0.down_proj.weight"});
  const std::string line = loading(path("one"));
  EXPECT_THAT(line, HasSubstr("layers for multi-token prediction are left out"));
  EXPECT_EQ(std::ranges::count(line, '\n'), 1) << line;

  write_with_tensors(path("two"), "deepseek_v3", config, {"model.layers.4.enorm.weight"});
  EXPECT_THAT(loading(path("two")), HasSubstr("model.layers.4.enorm.weight is not part of this deepseek_v3 model"));
  write_with_tensors(path("inside"), "deepseek_v3", config, {"model.layers.2.enorm.weight"});
  EXPECT_THAT(loading(path("inside")), HasSubstr("model.layers.2.enorm.weight is not part of this"));
  write_with_tensors(path("fp8"), "deepseek_v3", config, {"model.layers.1.self_attn.o_proj.weight_scale_inv"});
  EXPECT_THAT(loading(path("fp8")),
              HasSubstr("o_proj.weight_scale_inv scales model.layers.1.self_attn.o_proj.weight, which is F32 instead"));
  Json none = config;
  none["num_nextn_predict_layers"] = 0;
  write_with_tensors(path("none"), "deepseek_v3", none, {"model.layers.3.enorm.weight"});
  EXPECT_THAT(loading(path("none")), HasSubstr("model.layers.3.enorm.weight is not part of this"));
  write_with_tensors(path("v2"), "deepseek_v2", config_of("deepseek_v2"), {"model.layers.3.enorm.weight"});
  EXPECT_THAT(loading(path("v2")), HasSubstr("model.layers.3.enorm.weight is not part of this deepseek_v2 model"));
}

// The biases keep f32 in a model of bf16, as in transformers, are saved, and are neither trained nor decayed.
TEST(Deepseek, BiasesOfExpertsAreSavedAndNotTrained) {
  FixtureModel model("deepseek_v3", DType::kBf16);
  const std::vector<std::byte> before = model.weights.download("layers.1.mlp.router_bias");
  const StoredTensor& stored = model.directory.weights().at(kBias);
  EXPECT_TRUE(std::ranges::equal(before, stored.bytes));

  const HostBatch batch = model.batch();
  const auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*model.model, model.weights, arena, {});
  Executable executable(
      trace_training(*model.model, {.capacity = capacity_of(batch), .compile = {.dtype = DType::kBf16}}), arena,
      {.weights = &model.weights, .gradients = &optimizer.gradients()});
  const std::vector<std::byte> router = model.weights.download("layers.1.mlp.router");
  for (int step = 0; step < 3; ++step) {
    (void)run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens));
    optimizer.update(1e-2, 1.0);
  }
  EXPECT_NE(model.weights.download("layers.1.mlp.router"), router);
  EXPECT_EQ(model.weights.download("layers.1.mlp.router_bias"), before);

  const TemporaryDirectory folder;
  save_model(folder.path() / "saved", *model.model, model.weights, nullptr);
  const ModelDirectory saved(folder.path() / "saved");
  EXPECT_EQ(saved.weights().at(kBias).type, StoredType::kF32);
  EXPECT_TRUE(std::ranges::equal(saved.weights().at(kBias).bytes, before));
  EXPECT_EQ(saved.weights().at("model.layers.1.mlp.gate.weight").type, StoredType::kBf16);
}

}  // namespace
}  // namespace hone::test
