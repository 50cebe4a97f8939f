#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "core/random.h"
#include "support/device.h"
#include "support/models.h"
#include "train/loss_program.h"

namespace hone::test {
namespace {

using Contents = std::map<std::string, std::vector<std::byte>>;

Contents contents_of(const TensorStore& store) {
  Contents contents;
  for (const NamedType& tensor : store.tensors()) contents[tensor.name] = store.download(tensor.name);
  return contents;
}

void restore(TensorStore& store, const Contents& contents) {
  for (const auto& [name, bytes] : contents) store.upload(name, bytes);
}

// A small model and its optimizer, fed with gradients from a generator: moments of all sizes.
class TrainedModel {
 public:
  TrainedModel(DType dtype, const OptimizerOptions& options)
      : fixture_("qwen3", dtype),
        optimizer_(*fixture_.model, fixture_.weights, std::make_shared<Arena>(test_device()), options) {}

  // Those of the steps up to, not including, `end`.
  void run_to(std::int64_t end) {
    for (; optimizer_.steps() < end;) {
      for (const NamedType& tensor : optimizer_.gradients().tensors()) set_gradient(tensor);
      optimizer_.update(1e-2, 0);
    }
  }
  Optimizer& optimizer() { return optimizer_; }
  TensorStore& weights() { return fixture_.weights; }

 private:
  void set_gradient(const NamedType& tensor) {
    const RandomStream random(5, "gradients of " + tensor.name, static_cast<std::uint64_t>(optimizer_.steps()));
    const auto elements = static_cast<std::size_t>(tensor.type.elements());
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i) values[i] = random.normal(i) * (i % 7 == 0 ? 1.0f : 1e-3f);
    std::vector<std::byte> bytes(tensor.type.bytes());
    if (tensor.type.dtype == DType::bf16) {
      const std::vector<BFloat16> narrow(values.begin(), values.end());
      std::memcpy(bytes.data(), narrow.data(), bytes.size());
    } else {
      std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    optimizer_.gradients().device().upload(optimizer_.gradients().data(tensor.name), bytes.data(), bytes.size());
  }

  FixtureModel fixture_;
  Optimizer optimizer_;
};

// Weights and states after six steps, whether or not the run was stopped after three and begun again from its states.
TEST(Optimizer, GoesOnBitForBit) {
  for (const Moments moments : {Moments::wide, Moments::as_weights, Moments::codes}) {
    const OptimizerOptions options{.moments = moments, .gradients = GradientSums::as_weights};
    TrainedModel whole(DType::bf16, options);
    whole.run_to(3);
    TrainedModel resumed(DType::bf16, options);
    restore(resumed.weights(), contents_of(whole.weights()));
    restore(resumed.optimizer().mutable_states(), contents_of(whole.optimizer().states()));
    resumed.optimizer().set_steps(3);
    whole.run_to(6);
    resumed.run_to(6);
    EXPECT_EQ(contents_of(whole.weights()), contents_of(resumed.weights()));
    EXPECT_EQ(contents_of(whole.optimizer().states()), contents_of(resumed.optimizer().states()));
  }
}

TEST(Optimizer, CodesAreForLargeWeights) {
  const FixtureModel fixture("qwen3", DType::bf16);
  const OptimizerOptions options{.moments = Moments::codes};
  std::size_t coded = 0;
  std::size_t expected = 64;  // of the flag
  for (const NamedType& weight : weight_types(*fixture.model, DType::bf16)) {
    const auto elements = static_cast<std::size_t>(weight.type.elements());
    const bool large = elements >= 4096;
    coded += large ? 1 : 0;
    expected += 2 * align_up(large ? elements : 4 * elements);
    if (large) expected += 2 * align_up(4 * ((elements + 255) / 256));
  }
  EXPECT_GT(coded, 0u);
  const std::vector<NamedType> types = Optimizer::state_types(*fixture.model, DType::bf16, options);
  EXPECT_EQ(static_cast<std::size_t>(
                std::ranges::count_if(types, [](const NamedType& state) { return state.type.dtype == DType::u8; })),
            2 * coded);
  EXPECT_EQ(TensorStore::bytes_of(types), expected);
}

// Losses with moments of 8 bits stay with those of f32.
TEST(Optimizer, CodesTrackF32) {
  const auto losses = [](const OptimizerOptions& options) {
    FixtureModel fixture("qwen3");
    const HostBatch batch = fixture.batch();
    auto arena = std::make_shared<Arena>(test_device());
    Optimizer optimizer(*fixture.model, fixture.weights, arena, options);
    Executable executable(trace_training(*fixture.model, {.capacity = {batch.token_count(), batch.document_count()}}),
                          arena, {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
    std::vector<double> result;
    for (int step = 0; step < 60; ++step) {
      result.push_back(run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens)).loss);
      optimizer.update(1e-3, 1.0);
    }
    return result;
  };
  const std::vector<double> wide = losses({});
  const std::vector<double> coded = losses({.moments = Moments::codes});
  EXPECT_LT(wide.back(), 0.7 * wide.front());
  EXPECT_NE(wide, coded);
  for (std::size_t step = 0; step < wide.size(); ++step) {
    EXPECT_NEAR(coded[step], wide[step], 0.03 * wide.front()) << "step " << step;
  }
}

}  // namespace
}  // namespace hone::test
