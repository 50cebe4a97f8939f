// The optimizer of a run: the program that updates weights, and what it keeps beside them.
#pragma once

#include <cstdint>
#include <memory>

#include "model/model.h"
#include "train/update_rule.h"
#include "workspace/workspace.h"

namespace hone {

inline constexpr const char* kUpdateProgram = "update";
inline constexpr const char* kOptimizerStore = "optimizer";

// The program of an update: every trainable weight of the model moves by its rule. States of weights with at least
// kLeastPaged elements are placed in the host's memory where the options page them.
[[nodiscard]] Program trace_update(const Model& model, DType dtype, const OptimizerOptions& options);
// Adds that program, and with it gradients and optimizer states, to a workspace that has the model's weights.
void add_update(Workspace& workspace, const Model& model, DType dtype, const OptimizerOptions& options);

// What one update did.
struct UpdateResult {
  double grad_norm = 0;  // before clipping
  bool applied = true;   // false: the norm was not finite, and the weights are as they were
};

class Optimizer {
 public:
  // With the update that add_update() put into a workspace, which is allocated and outlives the optimizer. Masters,
  // where the options have them, are taken from the weights now.
  Optimizer(Workspace& workspace, const Model& model, const OptimizerOptions& options);
  // With a workspace of its own, beside weights that are there.
  Optimizer(const Model& model, const TensorStore& weights, const std::shared_ptr<Arena>& arena,
            const OptimizerOptions& options);
  Optimizer(Optimizer&&) noexcept;
  ~Optimizer();

  // Where micro-batches accumulate; zero after every update.
  [[nodiscard]] const TensorStore& gradients() const;
  // max_grad_norm 0: no clipping.
  UpdateResult update(double learning_rate, double max_grad_norm);
  // Drops what has been accumulated.
  void discard();
  // Forgets that a number was not finite, so that the next update counts again.
  void clear_guard();

  [[nodiscard]] std::int64_t steps() const { return steps_; }  // updates that were applied
  // For a resume: the states of a checkpoint have been uploaded, and this many updates were applied.
  void set_steps(std::int64_t steps) { steps_ = steps; }
  [[nodiscard]] const Executable& executable() const;
  void set_observer(NodeObserver* observer);
  [[nodiscard]] Workspace& workspace() { return *workspace_; }

 private:
  Optimizer(std::unique_ptr<Workspace> own, const Model& model, const OptimizerOptions& options);

  std::unique_ptr<Workspace> own_;  // null where the workspace is a run's
  Workspace* workspace_;
  AdamwAttributes attributes_;
  std::int64_t steps_ = 0;
};

}  // namespace hone
