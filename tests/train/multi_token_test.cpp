// The layer for multi-token prediction of deepseek_v3: its loss, its gradients, and its tensors in folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/expert_options.h"
#include "train/loss_program.h"
#include "train/optimizer.h"

namespace hone::test {
namespace {

constexpr double kMtpLossWeight = 0.3;  // of tests/fixtures/models/make_multi_token.py
constexpr const char* kLayer = "model.layers.3.";

std::vector<float> values_of(const TensorStore& store, const std::string& name) {
  const std::vector<std::byte> bytes = store.download(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Writes deepseek_v3 with the layer of the reference; the copies of embedding and head as in published folders.
void write_with_layer(const std::filesystem::path& path, const SafetensorsFile& reference) {
  const ModelDirectory original(fixture("models") / "deepseek_v3");
  std::vector<TensorSource> sources;
  const auto add = [&](const std::string& name, const StoredTensor& tensor) {
    sources.push_back(tensor_source(name, dtype_of(tensor.type).value(), tensor.shape, tensor.bytes));
  };
  for (const SafetensorsFile& file : original.weights().files()) {
    for (const StoredTensor& tensor : file.tensors()) add(tensor.name, tensor);
  }
  for (const StoredTensor& tensor : reference.tensors()) {
    if (tensor.name.starts_with(kLayer)) add(tensor.name, tensor);
  }
  add(std::string(kLayer) + "embed_tokens.weight", original.weights().at("model.embed_tokens.weight"));
  add(std::string(kLayer) + "shared_head.head.weight", original.weights().at("lm_head.weight"));
  write_model_directory(path, {.config = original.config(), .generation_config = nullptr, .weights = sources});
}

class MultiToken : public testing::Test {
 protected:
  MultiToken() : reference_(fixture("models") / "deepseek_v3" / "multi_token.safetensors") {
    write_with_layer(path(), reference_);
  }
  std::filesystem::path path() const { return folder_.path() / "model"; }
  std::unique_ptr<Model> model(double weight) const {
    std::unique_ptr<Model> model = family_registry().create(ModelDirectory(path()).config());
    model->prepare_training({.mtp_loss_weight = weight});
    return model;
  }
  HostBatch batch() const {
    const auto ids = read_values<std::int64_t>(reference_.at("input_ids"));
    const auto half = static_cast<std::ptrdiff_t>(ids.size() / 2);
    return batch_of(
        std::vector<std::vector<TokenId>>{{ids.begin(), ids.begin() + half}, {ids.begin() + half, ids.end()}});
  }

  TemporaryDirectory folder_;
  SafetensorsFile reference_;
};

TEST_F(MultiToken, LossAndGradientsAreThoseOfTheReference) {
  const std::unique_ptr<Model> model = this->model(kMtpLossWeight);
  TensorStore weights = load_weights(*model, ModelDirectory(path()), DType::kF32, test_device());
  const auto arena = std::make_shared<Arena>(test_device());
  const HostBatch batch = this->batch();
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
    const Optimizer optimizer(*model, weights, arena, {});
    Executable executable(trace_training(*model, {.capacity = capacity_of(batch), .compile = {.recompute = recompute}}),
                          arena, {.weights = &weights, .gradients = &optimizer.gradients()});
    const LossSums sums = run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens));
    MetricValues figures;
    sums.figures.append_to(figures, 1.0);
    const auto of = [&](const std::string& name) { return read_values<float>(reference_.at(name)); };
    EXPECT_NEAR(sums.loss, static_cast<double>(of("loss")[0]), 1e-4 * sums.loss);
    const auto mtp = std::ranges::find(figures, "mtp_loss", [](const auto& figure) { return figure.first; });
    ASSERT_NE(mtp, figures.end());
    EXPECT_NEAR(mtp->second, static_cast<double>(of("mtp_loss")[0]), 1e-4 * mtp->second);
    std::size_t compared = 0;
    for (const WeightSpec& spec : model->weights()) {
      if (!spec.trainable) continue;
      const std::vector<float> gradient = values_of(optimizer.gradients(), spec.name);
      const auto row = static_cast<std::size_t>(optimizer.gradients().type(spec.name).row_size());
      for (const WeightPart& part : spec.parts) {
        const std::string name = "gradient." + part.name;
        if (reference_.find(name) == nullptr) continue;
        const std::vector<float> expected = of(name);
        const std::span<const float> own(gradient.data() + static_cast<std::size_t>(part.row) * row, expected.size());
        EXPECT_LE(relative_difference(own, expected), 1e-3) << name;
        ++compared;
      }
    }
    const auto gradients = std::ranges::count_if(
        reference_.tensors(), [](const StoredTensor& tensor) { return tensor.name.starts_with("gradient."); });
    EXPECT_EQ(compared, static_cast<std::size_t>(gradients));
  }
}

TEST_F(MultiToken, ASplitChangesNoLoss) {
  const std::unique_ptr<Model> model = this->model(kMtpLossWeight);
  const TensorStore weights = load_weights(*model, ModelDirectory(path()), DType::kF32, test_device());
  const auto arena = std::make_shared<Arena>(test_device());
  const std::vector<std::vector<TokenId>> documents{{1, 2, 3, 4, 5}, {6}, {9, 8}, {7, 5, 3, 1}};
  const auto loss_of = [&](const std::vector<HostBatch>& batches) {
    Optimizer optimizer(*model, weights, arena, {});
    Executable executable(trace_training(*model, {.capacity = {12, 4}}), arena,
                          {.weights = &weights, .gradients = &optimizer.gradients()});
    LossLaunches launches(executable, batches.size());
    for (const HostBatch& batch : batches) launches.launch(batch, 1.0 / 8);
    return launches.sums().loss;
  };
  std::vector<HostBatch> apart;
  for (const auto& document : documents) apart.push_back(batch_of(std::vector<std::vector<TokenId>>{document}));
  EXPECT_NEAR(loss_of({batch_of(documents)}), loss_of(apart), 1e-5);
}

TEST_F(MultiToken, TheLayerIsSavedUnderItsPublishedNamesOrLeftOut) {
  const std::unique_ptr<Model> with = model(kMtpLossWeight);
  const ModelDirectory original(path());
  save_model(folder_.path() / "with", *with, load_weights(*with, original, DType::kF32, test_device()), nullptr);
  const ModelDirectory saved(folder_.path() / "with");
  EXPECT_THAT(saved.weights().names(), testing::UnorderedElementsAreArray(original.weights().names()));
  for (const std::string& name : original.weights().names()) {
    EXPECT_TRUE(std::ranges::equal(saved.weights().at(name).bytes, original.weights().at(name).bytes)) << name;
  }
  const std::unique_ptr<Model> without = model(0);
  save_model(folder_.path() / "without", *without, load_weights(*without, original, DType::kF32, test_device()),
             nullptr);
  for (const std::string& name : ModelDirectory(folder_.path() / "without").weights().names()) {
    EXPECT_FALSE(name.starts_with(kLayer)) << name;
  }
}

TEST_F(MultiToken, AFolderWithoutTheLayerIsRefusedWhereItIsTrained) {
  const std::unique_ptr<Model> model = this->model(kMtpLossWeight);
  const ModelDirectory bare(fixture("models") / "deepseek_v3");
  EXPECT_THROW((void)load_weights(*model, bare, DType::kF32, test_device()), Error);
}

TEST_F(MultiToken, OtherModelsRefuseTheKey) {
  using testing::HasSubstr;
  const auto preparing = [](const Json& config) -> std::string {
    try {
      prepare_experts(*family_registry().create(config), {.mtp_loss_weight = 0.1}, false);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  Json config = ModelDirectory(path()).config();
  EXPECT_EQ(preparing(config), "no error");
  config["num_nextn_predict_layers"] = 2;
  EXPECT_THAT(preparing(config), HasSubstr("num_nextn_predict_layers is 2: hone trains one such layer"));
  config["num_nextn_predict_layers"] = 0;
  EXPECT_THAT(preparing(config), HasSubstr("the model has no layer for multi-token prediction"));
  for (const char* name : {"qwen3", "mixtral", "deepseek_v2", "gpt2"}) {
    EXPECT_THAT(preparing(ModelDirectory(fixture("models") / name).config()),
                HasSubstr("mtp_loss_weight: is 0.1, but"));
  }
}

}  // namespace
}  // namespace hone::test
