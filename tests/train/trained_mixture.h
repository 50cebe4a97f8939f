// Training of a small mixture of experts, step by step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random.h"
#include "model/weight_kind.h"
#include "support/device.h"
#include "support/models.h"
#include "train/loss_program.h"
#include "train/optimizer.h"
#include "train/setup.h"

namespace hone::test {

struct MixtureRunOptions {
  std::string_view model = "qwen3_moe";
  DType dtype = DType::kBf16;
  OptimizerOptions optimizer;
  Recompute recompute = Recompute::kNone;
};

// A model, its programs in two capacities and its optimizer.
class TrainedMixture {
 public:
  static constexpr std::int64_t kMost = 8;  // tokens of a micro-batch

  TrainedMixture(const MixtureRunOptions& options, bool overwrites)
      : fixture_(options.model, options.dtype), workspace_(test_device().kind()) {
    OptimizerOptions optimizer = options.optimizer;
    optimizer.overwrites = overwrites;
    experts_ = overwritten_gradients(*fixture_.model, optimizer);
    workspace_.add_weights(kWeightStore, fixture_.weights.tensors());
    add_update(workspace_, *fixture_.model, options.dtype, optimizer);
    const auto trace = [&](std::int64_t tokens) {
      return trace_training(*fixture_.model, {.capacity = {tokens, 2},
                                              .compile = {.dtype = options.dtype,
                                                          .device = test_device().kind(),
                                                          .recompute = options.recompute,
                                                          .gradients = optimizer.gradients,
                                                          .overwritten = experts_}});
    };
    add_sized(workspace_, kTrainingProgram, std::vector<std::int64_t>{kMost / 2, kMost}, trace, training_use());
    workspace_.provide(kWeightStore, fixture_.weights.view());
    workspace_.allocate(test_device());
    optimizer_ = std::make_unique<Optimizer>(workspace_, *fixture_.model, optimizer);
  }

  // Runs a step of these numbers of tokens; `weight` is that of each target.
  bool step(std::span<const std::int64_t> tokens, double weight = 0.25) {
    launch(tokens, weight);
    optimizer_->sum_gradients();
    const UpdateResult result = optimizer_->update(1e-2, 1.0);
    norms.push_back(result.grad_norm);
    if (!result.applied) optimizer_->clear_guard();
    return result.applied;
  }
  void launch(std::span<const std::int64_t> tokens, double weight = 0.25) {
    LossLaunches launches({workspace_, kTrainingProgram}, tokens.size());
    for (const std::int64_t count : tokens) {
      const RandomStream random(7, "tokens", drawn_++);
      std::vector<TokenId> document(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < document.size(); ++i) document[i] = static_cast<TokenId>(random.below(i, 300));
      launches.launch(batch_of({&document, 1}), weight);
    }
    losses.push_back(launches.sums().loss);
  }
  Optimizer& optimizer() { return *optimizer_; }
  Workspace& workspace() { return workspace_; }
  [[nodiscard]] const OverwrittenGradients& experts() const { return experts_; }

  [[nodiscard]] std::vector<std::byte> weights() const { return bits_of(fixture_.weights); }
  // Rows of experts' matrices whose gradient is 0, and all of them.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> rows_without_gradient() {
    std::int64_t none = 0;
    std::int64_t all = 0;
    for (const WeightSpec& spec : fixture_.model->weights()) {
      if (spec.kind != WeightKind::expert) continue;
      const std::vector<std::byte> bytes = optimizer_->gradients().download(spec.name);
      const auto row = static_cast<std::ptrdiff_t>(bytes.size()) / spec.shape[0];
      for (std::int64_t r = 0; r < spec.shape[0]; ++r, ++all) {
        const auto begin = bytes.begin() + r * row;
        none += std::all_of(begin, begin + row, [](std::byte each) { return each == std::byte{}; });
      }
    }
    return {none, all};
  }

  std::vector<double> losses;
  std::vector<double> norms;

 private:
  static std::vector<std::byte> bits_of(const TensorStore& store) {
    std::vector<std::byte> bits;
    for (const NamedType& tensor : store.tensors()) {
      const std::vector<std::byte> bytes = store.download(tensor.name);
      bits.insert(bits.end(), bytes.begin(), bytes.end());
    }
    return bits;
  }

  FixtureModel fixture_;
  Workspace workspace_;
  OverwrittenGradients experts_;
  std::unique_ptr<Optimizer> optimizer_;
  std::uint64_t drawn_ = 0;
};

}  // namespace hone::test
