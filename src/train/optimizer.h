// The optimizer of a run: gradients, moments, master weights and the program that updates them all.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/model.h"
#include "model/weights.h"
#include "program/executable.h"
#include "train/update_rule.h"

namespace hone {

// What one update did.
struct UpdateResult {
  double grad_norm = 0;  // before clipping
  bool applied = true;   // false: the norm was not finite, and the weights are as they were
};

class Optimizer {
 public:
  // Those of `weights` that are trainable are updated in place; masters, where the options have them, are taken from
  // them now. The decay applies to the weights that decay.
  Optimizer(const Model& model, TensorStore& weights, std::shared_ptr<Arena> arena, const OptimizerOptions& options);

  // Where micro-batches accumulate; zero after every update.
  [[nodiscard]] const TensorStore& gradients() const { return gradients_; }
  // max_grad_norm 0: no clipping.
  UpdateResult update(double learning_rate, double max_grad_norm);
  // Drops what has been accumulated.
  void discard() { gradients_.fill_zero(); }
  // Forgets that a number was not finite, so that the next update counts again.
  void clear_guard();

  [[nodiscard]] std::int64_t steps() const { return steps_; }  // updates that were applied
  // All of them, in the device's memory and in the host's.
  [[nodiscard]] std::array<TensorStore*, 2> states() { return {&states_, &paged_}; }
  // For a resume: the states of a checkpoint have been uploaded into `states()`, and this many updates were applied.
  void set_steps(std::int64_t steps) { steps_ = steps; }
  [[nodiscard]] const Executable& executable() const { return *executable_; }
  void set_observer(NodeObserver* observer) { executable_->set_observer(observer); }

  // The stores' tensors and the update's program, for plans made without a run.
  [[nodiscard]] static std::vector<NamedType> gradient_types(const Model& model, DType dtype,
                                                             const OptimizerOptions& options);
  [[nodiscard]] static std::vector<NamedType> state_types(const Model& model, DType dtype,
                                                          const OptimizerOptions& options);
  [[nodiscard]] static std::vector<NamedType> paged_types(const Model& model, DType dtype,
                                                          const OptimizerOptions& options);
  [[nodiscard]] static Program trace_update(const Model& model, DType dtype, const OptimizerOptions& options);

 private:
  AdamwAttributes attributes_;
  TensorStore gradients_;
  TensorStore states_;
  TensorStore paged_;
  std::unique_ptr<Executable> executable_;
  std::int64_t steps_ = 0;
};

}  // namespace hone
