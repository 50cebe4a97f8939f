// Tests that a new kind of weight, with its own dtype and its own update rule, needs no change of existing files.
#include "model/weight_kind.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "model/lora.h"
#include "model/wrapped_model.h"
#include "ops/cast/cast.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/scale/scale.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/loss_program.h"
#include "train/registry.h"

namespace hone::test {
namespace {

constexpr WeightTraits kProbeTraits{.name = "probe", .decays = false, .adapter = AdapterUse::kRefused};
constexpr WeightKind kProbe(kProbeTraits);
constexpr const char* kProbeName = "probe";

// An update rule without state: plain gradient descent, whatever the optimizer is.
class ProbeRule final : public WeightUpdateRule {
 public:
  std::vector<NamedType> states(const WeightSpec&, const Type&, const OptimizerOptions&) const override { return {}; }
  void append(const WeightSpec&, const UpdatedWeight& tensors, const AdamwStep& step,
              const AdamwAttributes& attributes) const override {
    sgd({tensors.weight, tensors.gradient, {}, {}}, step,
        {.weight_decay = attributes.weight_decay, .seed = attributes.seed, .stream = attributes.stream});
  }
};

const ProbeRule kProbeRule;

// A model with an additional probe, held in f32 whatever the model's dtype, that learns to predict tokens from their
// hidden states.
class Probed final : public WrappedModel {
 public:
  explicit Probed(std::unique_ptr<Model> base) : WrappedModel(std::move(base)) {
    const std::int64_t vocab_size = shape().vocab_size;
    specs_.push_back({.name = kProbeName,
                      .shape = {vocab_size, shape().hidden_size},
                      .parts = {{"model.probe.weight", 0, vocab_size}},
                      .kind = kProbe,
                      .dtype = DType::kF32});
    check_specs(specs_);
  }
  const std::vector<WeightSpec>& traced_weights() const override { return specs_; }
  Tensor forward(WeightBinder& weights, Batch& batch) const override {
    const Tensor hidden = WrappedModel::forward(weights, batch);
    if (!batch.learns) return hidden;
    const Tensor logp = linear_logprobs(cast(hidden, DType::kF32), weights(kProbeName), batch.tokens, {}).logp;
    batch.add_loss({"probe_loss", 1.0, scale(logp, -1.0)});
    return hidden;
  }
};

std::unique_ptr<Model> probed() {
  static const bool once = [] {
    update_rule_registry().add(kProbe, kProbeRule);
    return true;
  }();
  (void)once;
  return std::make_unique<Probed>(FixtureModel("qwen3").model);
}

TEST(WeightKindOfItsOwn, IsHeldInItsTypeAndMovesByItsRule) {
  constexpr double kRate = 0.5;
  const std::unique_ptr<Model> model = probed();
  TensorStore weights = random_weights(*model, 1, DType::kBf16, test_device());
  EXPECT_EQ(weights.type(kProbeName).dtype, DType::kF32);
  EXPECT_EQ(model_dtype(*model, weights), DType::kBf16);

  const HostBatch batch = batch_of(std::vector<std::vector<TokenId>>{{1, 2, 3, 4, 5, 6, 7, 8}, {3, 1, 3, 1}});
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*model, weights, arena, {});
  for (const NamedType& state : update_store(*model, DType::kBf16, {}, kOptimizerStore)) {
    EXPECT_FALSE(state.name.starts_with(kProbeName)) << state.name;
  }
  Executable executable(trace_training(*model, {.capacity = capacity_of(batch), .compile = {.dtype = DType::kBf16}}),
                        arena, {.weights = &weights, .gradients = &optimizer.gradients()});
  const std::vector<float> before = floats_of(weights.download(kProbeName));
  double first = 0;
  for (int step = 0; step < 20; ++step) {
    const LossSums sums = run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens));
    MetricValues figures;
    sums.figures.append_to(figures, 1.0);
    ASSERT_EQ(figures.size(), 1u);
    if (step == 0) first = figures[0].second;
    if (step == 19) {
      EXPECT_LT(figures[0].second, first);
    }
    const std::vector<float> gradient = floats_of(optimizer.gradients().download(kProbeName));
    const std::vector<float> old = floats_of(weights.download(kProbeName));
    optimizer.update(kRate, 0.0);
    const std::vector<float> now = floats_of(weights.download(kProbeName));
    for (std::size_t i = 0; i < now.size(); ++i) {
      ASSERT_FLOAT_EQ(now[i], old[i] - static_cast<float>(kRate) * gradient[i]) << "entry " << i;
    }
  }
  EXPECT_GT(relative_difference(floats_of(weights.download(kProbeName)), before), 0.01);
}

TEST(WeightKindOfItsOwn, IsSavedAndLoadedInItsType) {
  const std::unique_ptr<Model> model = probed();
  const TensorStore weights = random_weights(*model, 2, DType::kBf16, test_device());
  const TemporaryDirectory folder;
  save_model(folder.path() / "probed", *model, weights, nullptr);
  const ModelDirectory saved(folder.path() / "probed");
  EXPECT_EQ(saved.weights().at("model.probe.weight").type, StoredType::kF32);
  EXPECT_EQ(saved.weights().at("model.embed_tokens.weight").type, StoredType::kBf16);
  const TensorStore loaded = load_weights(*model, saved, DType::kBf16, test_device());
  for (const NamedType& tensor : weights.tensors()) {
    EXPECT_EQ(loaded.download(tensor.name), weights.download(tensor.name)) << tensor.name;
  }
}

// The kind does not support adapters, so all-linear must report it instead of skipping it.
TEST(WeightKindOfItsOwn, IsNamedWhereAnAdapterIsWanted) {
  LoraConfig config;
  config.target_modules = {"all-linear"};
  try {
    const LoraModel adapted(probed(), config);
    FAIL() << "all-linear left the probe out";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model.probe, which can have no adapter"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace hone::test
