#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/random.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/loss_program.h"
#include "train/optim_args.h"

namespace hone::test {
namespace {

using Contents = std::map<std::string, std::vector<std::byte>>;

Contents contents_of(std::span<TensorStore* const> stores) {
  Contents contents;
  for (const TensorStore* store : stores) {
    for (const NamedType& tensor : store->tensors()) contents[tensor.name] = store->download(tensor.name);
  }
  return contents;
}

void restore(std::span<TensorStore* const> stores, const Contents& contents) {
  for (TensorStore* store : stores) {
    for (const NamedType& tensor : store->tensors()) store->upload(tensor.name, contents.at(tensor.name));
  }
}

// A small model and its optimizer, with random gradients whose moments have many magnitudes.
class TrainedModel {
 public:
  // vocabulary: replaces the vocabulary size of the model unless 0.
  TrainedModel(DType dtype, const OptimizerOptions& options, std::int64_t vocabulary = 0)
      : model_(model_with(vocabulary)),
        weights_(random_weights(*model_, 1, dtype, test_device())),
        optimizer_(*model_, weights_, std::make_shared<Arena>(test_device()), options) {}

  // Runs the steps up to, not including, `end`.
  void run_to(std::int64_t end) {
    for (; optimizer_.steps() < end;) {
      for (const NamedType& tensor : optimizer_.gradients().tensors()) set_gradient(tensor);
      optimizer_.update(1e-2, 0);
    }
  }
  Optimizer& optimizer() { return optimizer_; }
  Contents weights() { return contents_of(std::array{&weights_}); }
  Contents states() { return contents_of(saved()); }
  std::vector<TensorStore*> saved() {
    std::vector<TensorStore*> stores;
    for (const auto& [prefix, store] : optimizer_.workspace().saved_stores()) stores.push_back(store);
    return stores;
  }
  void restore_from(TrainedModel& other) {
    restore(std::array{&weights_}, other.weights());
    restore(saved(), other.states());
    optimizer_.set_steps(other.optimizer_.steps());
  }

 private:
  void set_gradient(const NamedType& tensor) {
    const RandomStream random(5, "gradients of " + tensor.name, static_cast<std::uint64_t>(optimizer_.steps()));
    const auto elements = static_cast<std::size_t>(tensor.type.elements());
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i) values[i] = random.normal(i) * (i % 7 == 0 ? 1.0f : 1e-3f);
    std::vector<std::byte> bytes(tensor.type.bytes());
    if (tensor.type.dtype == DType::kBf16) {
      const std::vector<BFloat16> narrow(values.begin(), values.end());
      std::memcpy(bytes.data(), narrow.data(), bytes.size());
    } else {
      std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    optimizer_.gradients().device().upload(optimizer_.gradients().data(tensor.name), bytes.data(), bytes.size());
  }

  static std::unique_ptr<Model> model_with(std::int64_t vocabulary) {
    Json config = read_json(fixture("models/qwen3/config.json"));
    if (vocabulary > 0) config["vocab_size"] = vocabulary;
    return family_registry().create(config);
  }

  std::unique_ptr<Model> model_;
  TensorStore weights_;
  Optimizer optimizer_;
};

// Six steps give the same weights and states as three steps, a restart from the states, and three more steps.
TEST(Optimizer, GoesOnBitForBit) {
  std::vector<OptimizerOptions> all;
  for (const MomentFormat moments : {MomentFormat::kWide, MomentFormat::kAsWeights, MomentFormat::kInt8}) {
    all.push_back({.moments = moments, .gradients = GradientAccumulation::kAsWeights});
  }
  for (const bool masters : {true, false}) {
    all.push_back({.rule = UpdateRule::kMuon, .masters = masters, .gradients = GradientAccumulation::kAsWeights});
    all.push_back({.rule = UpdateRule::kSgd, .sgd = {.momentum = 0.9}, .masters = masters});
  }
  for (const OptimizerOptions& options : all) {
    TrainedModel whole(DType::kBf16, options);
    whole.run_to(3);
    TrainedModel resumed(DType::kBf16, options);
    resumed.restore_from(whole);
    whole.run_to(6);
    resumed.run_to(6);
    EXPECT_EQ(whole.weights(), resumed.weights());
    EXPECT_EQ(whole.states(), resumed.states());
  }
}

// A model whose embedding is large enough to be paged, with its states on the device or in host memory.
TEST(Optimizer, PagingChangesMemoryAndNoBit) {
  for (const MomentFormat moments : {MomentFormat::kWide, MomentFormat::kInt8}) {
    OptimizerOptions options{.moments = moments, .gradients = GradientAccumulation::kAsWeights};
    TrainedModel resident(DType::kBf16, options, 3000);
    options.paged = true;
    TrainedModel paged(DType::kBf16, options, 3000);
    TrainedModel resumed(DType::kBf16, options, 3000);
    EXPECT_EQ(resident.optimizer().workspace().memory().paged, 0u);
    EXPECT_GT(paged.optimizer().workspace().memory().paged, 0u);
    EXPECT_EQ(paged.saved().size(), 2u);
    for (const std::int64_t end : {2, 4}) {
      resident.run_to(end);
      paged.run_to(end);
      EXPECT_EQ(resident.weights(), paged.weights());
      EXPECT_EQ(resident.states(), paged.states());
    }
    resumed.restore_from(resident);
    resident.run_to(5);
    resumed.run_to(5);
    EXPECT_EQ(resident.weights(), resumed.weights());
    EXPECT_EQ(resident.states(), resumed.states());
  }
}

// Muon keeps one number per element of the layers' matrices, AdamW two per element of other weights; SGD without
// momentum keeps none.
TEST(Optimizer, RulesKeepWhatTheyNeed) {
  const FixtureModel fixture("qwen3", DType::kBf16);
  const auto states = [&](const OptimizerOptions& options) {
    std::map<std::string, std::int64_t> elements;
    for (const NamedType& state : update_store(*fixture.model, DType::kBf16, options, kOptimizerStore)) {
      elements[state.name.substr(state.name.rfind('.') + 1)] += state.type.elements();
    }
    return elements;
  };
  std::int64_t matrices = 0;
  std::int64_t all = 0;
  for (const WeightSpec& spec : fixture.model->weights()) {
    const std::int64_t elements = Type{DType::kF32, Shape(spec.shape.begin(), spec.shape.end())}.elements();
    all += elements;
    if (spec.shape.size() == 2 && spec.name.starts_with("layers.")) matrices += elements;
  }
  using Elements = std::map<std::string, std::int64_t>;
  EXPECT_EQ(states({.rule = UpdateRule::kMuon}), (Elements{{"momentum", matrices},
                                                           {"exp_avg", all - matrices},
                                                           {"exp_avg_sq", all - matrices},
                                                           {"master", all},
                                                           {"nonfinite", 1}}));
  EXPECT_EQ(states({.rule = UpdateRule::kSgd}), (Elements{{"master", all}, {"nonfinite", 1}}));
  EXPECT_EQ(states({.rule = UpdateRule::kSgd, .masters = false}), (Elements{{"nonfinite", 1}}));
}

// The kind of a weight decides its update rule, not its name or its shape.
TEST(Optimizer, MuonGoesByTheKindOfAWeight) {
  const OptimizerOptions options{.rule = UpdateRule::kMuon};
  const Type matrix{DType::kF32, {8, 8}};
  const auto states = [&](WeightKind kind) {
    return states_of({.name = "layers.0.matrix", .shape = {8, 8}, .parts = {}, .kind = kind}, matrix, options).size();
  };
  EXPECT_EQ(states(WeightKind::linear), 1u);
  EXPECT_EQ(states(WeightKind::table), 2u);
  EXPECT_EQ(states(WeightKind::router), 2u);
  EXPECT_THROW((void)states(WeightKind::expert), Error);
  EXPECT_THROW(check_specs({{.name = "layers.0.matrix", .shape = {8, 8}, .parts = {}}}), Defect);
}

TEST(Optimizer, CodesAreForLargeWeights) {
  const FixtureModel fixture("qwen3", DType::kBf16);
  const OptimizerOptions options{.moments = MomentFormat::kInt8};
  std::size_t coded = 0;
  std::size_t expected = 64;  // bytes of the non-finite flag
  for (const NamedType& weight : weight_types(*fixture.model, DType::kBf16)) {
    const auto elements = static_cast<std::size_t>(weight.type.elements());
    const bool large = elements >= 4096;
    coded += large ? 1 : 0;
    expected += 2 * align_up(large ? elements : 4 * elements);
    if (large) expected += 2 * align_up(4 * ((elements + 255) / 256));
  }
  EXPECT_GT(coded, 0u);
  const std::vector<NamedType> types = update_store(*fixture.model, DType::kBf16, options, kOptimizerStore);
  EXPECT_EQ(static_cast<std::size_t>(
                std::ranges::count_if(types, [](const NamedType& state) { return state.type.dtype == DType::kU8; })),
            2 * coded);
  EXPECT_EQ(TensorStore::bytes_of(types), expected);
}

// Returns the losses of 60 steps on one batch.
std::vector<double> losses(const OptimizerOptions& options, double learning_rate = 1e-3) {
  FixtureModel fixture("qwen3");
  const HostBatch batch = fixture.batch();
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*fixture.model, fixture.weights, arena, options);
  Executable executable(trace_training(*fixture.model, {.capacity = {batch.token_count(), batch.document_count()}}),
                        arena, {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  std::vector<double> result;
  for (int step = 0; step < 60; ++step) {
    result.push_back(run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens)).loss);
    optimizer.update(learning_rate, 1.0);
  }
  return result;
}

// Losses with 8-bit moments stay close to those with f32 moments.
TEST(Optimizer, CodesTrackF32) {
  const std::vector<double> wide = losses({});
  const std::vector<double> coded = losses({.moments = MomentFormat::kInt8});
  EXPECT_LT(wide.back(), 0.7 * wide.front());
  EXPECT_NE(wide, coded);
  for (std::size_t step = 0; step < wide.size(); ++step) {
    EXPECT_NEAR(coded[step], wide[step], 0.03 * wide.front()) << "step " << step;
  }
}

TEST(Optimizer, EveryRuleLearns) {
  const std::vector<double> muon = losses({.rule = UpdateRule::kMuon});
  EXPECT_LT(muon.back(), 0.7 * muon.front());
  const std::vector<double> sgd = losses({.rule = UpdateRule::kSgd, .sgd = {.momentum = 0.9}}, 0.1);
  EXPECT_LT(sgd.back(), 0.7 * sgd.front());
}

// Returns the error for a text of optim_args.
std::string error_of(std::string_view text, OptimizerOptions options) {
  try {
    apply_optim_args(text, "NAME", options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(OptimArgs, AreReadAsTransformersWritesThem) {
  OptimizerOptions options{.rule = UpdateRule::kSgd};
  apply_optim_args("momentum=0.9, nesterov=True,master_weights=false", "sgd", options);
  EXPECT_EQ(options.sgd.momentum, 0.9);
  EXPECT_TRUE(options.sgd.nesterov);
  EXPECT_FALSE(options.masters);
  options = {.rule = UpdateRule::kMuon};
  apply_optim_args("adjust_lr_fn=original,lr_ratio=20,ns_steps=6,nesterov=no", "muon", options);
  EXPECT_EQ(options.muon.scale, MuonScale::kOriginal);
  EXPECT_EQ(options.muon.rate_ratio, 20);
  EXPECT_EQ(options.muon.steps, 6);
  EXPECT_FALSE(options.muon.nesterov);
  EXPECT_EQ(options.muon.momentum, 0.95);
}

TEST(OptimArgs, RefuseWhatIsNotRead) {
  EXPECT_EQ(error_of("", {}), "no error");
  EXPECT_NE(error_of("momentum=0.9", {}).find("optim NAME does not read momentum"), std::string::npos);
  EXPECT_NE(error_of("dampening=0.1", {.rule = UpdateRule::kMuon}).find("does not read dampening"), std::string::npos);
  EXPECT_NE(error_of("momentum", {.rule = UpdateRule::kSgd}).find("expected name=value, saw 'momentum'"),
            std::string::npos);
  EXPECT_NE(error_of("nesterov=true", {.rule = UpdateRule::kSgd}).find("nesterov needs a momentum"), std::string::npos);
  EXPECT_NE(error_of("momentun=0.9", {.rule = UpdateRule::kSgd}).find("momentum"), std::string::npos);
  EXPECT_NE(error_of("momentum=2", {.rule = UpdateRule::kSgd}).find("momentum"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
