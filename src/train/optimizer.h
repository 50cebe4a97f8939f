// The optimizer of a run: the update program, its states and the gradients that it consumes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/collective.h"
#include "model/model.h"
#include "model/state_tensors.h"
#include "train/shards.h"
#include "train/update_rule.h"
#include "workspace/workspace.h"

namespace hone {

inline constexpr const char* kUpdateProgram = "update";
inline constexpr const char* kOptimizerStore = "optimizer";

// Traces the update program, which moves every trainable weight of the model by its update rule. With options.paged the
// states of weights with at least kMinPagedElements elements are placed in host memory.
[[nodiscard]] Program trace_update(const Model& model, DType dtype, const OptimizerOptions& options);
// Adds this program with its gradients and optimizer states to a workspace that has the weights of the model.
void add_update(Workspace& workspace, const Model& model, DType dtype, const OptimizerOptions& options);

// Result of one update.
struct UpdateResult {
  double grad_norm = 0;  // before clipping
  bool applied = true;   // false: the norm is not finite and the weights are unchanged
};

class Optimizer {
 public:
  // Uses the update program that add_update() added to a workspace, which must be allocated and outlive the optimizer.
  // Initialises f32 master weights, if the options have them, from the current weights.
  Optimizer(Workspace& workspace, const Model& model, const OptimizerOptions& options);
  // Creates its own workspace for existing weights.
  Optimizer(const Model& model, const TensorStore& weights, const std::shared_ptr<Arena>& arena,
            const OptimizerOptions& options);
  Optimizer(Optimizer&&) noexcept;
  ~Optimizer();

  // Returns the gradients into which micro-batches accumulate; they are zero after every update, but for those that the
  // next micro-batch overwrites (overwritten_gradients).
  [[nodiscard]] const TensorStore& gradients() const;
  // Makes this process one rank of a job, whose weights become those of rank 0 unless they are divided.
  // programs_sum: the programs of the last micro-batch have summed the gradients, so that sum_gradients() does nothing.
  void join(Collective& job, bool programs_sum = false);
  // To be called when the device has been waited for after programs that communicate. Throws JobFailure if a rank was
  // lost meanwhile.
  void check_job();
  // Returns true if each rank of the job has only the states of its share of the weights.
  [[nodiscard]] bool is_divided() const { return shards_.ranks() > 1; }
  // Returns true if it has no other weights either.
  [[nodiscard]] bool has_divided_weights() const { return is_divided() && divided_weights_; }
  [[nodiscard]] const UpdateShards& shards() const { return shards_; }
  // Rows of the blocks whose states this rank has, if the update is divided; empty otherwise.
  [[nodiscard]] std::map<std::string, HeldRows> held_rows() const;
  // Replaces the accumulated gradients by their sums over all ranks of the job, which must be done before update().
  // Does nothing without a job, or if programs sum them.
  void sum_gradients();
  // Updates the weights from the accumulated gradients. max_grad_norm 0: no clipping.
  UpdateResult update(double learning_rate, double max_grad_norm);
  // Sets the accumulated gradients to zero.
  void discard();
  // Resets the flag of a non-finite gradient, so that the next update is applied again.
  void clear_guard();

  // Returns the number of updates that were applied.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  // Sets that number when a run resumes, after the states of a checkpoint have been uploaded.
  void set_steps(std::int64_t steps) { steps_ = steps; }
  [[nodiscard]] const Executable& executable() const;
  void set_observer(NodeObserver* observer);
  [[nodiscard]] Workspace& workspace() { return *workspace_; }

 private:
  Optimizer(std::unique_ptr<Workspace> own, const Model& model, const OptimizerOptions& options);
  // Makes the gradients the sums of the step if no micro-batch has run in it, as in a step of grpo whose samples all
  // have an advantage of 0: those that micro-batches overwrite are still of the step before. Waits for the device if
  // there are such.
  void clear_unwritten();
  // Says whether a micro-batch of the step has written the gradients that micro-batches overwrite, if there are such.
  void set_accumulated(bool accumulated);
  // Copies rank 0's weights to all ranks, and those of divided experts to the ranks that have the same ones.
  void join_experts();

  std::unique_ptr<Workspace> own_;  // null if the workspace belongs to the run
  Workspace* workspace_;
  AdamwAttributes attributes_;
  std::int64_t steps_ = 0;
  [[nodiscard]] std::byte* weights_begin() const;

  Collective* job_ = nullptr;
  UpdateShards shards_;
  bool divided_gradients_;
  bool divided_weights_;
  bool overwrites_;  // the next step's micro-batches overwrite some gradients (kAccumulatedFlag)
  bool programs_sum_ = false;
  // Ranges of the weights that are gathered after an update, of all ranks and of those with the same experts.
  std::vector<std::vector<ByteRange>> gathered_;
  std::vector<std::vector<ByteRange>> gathered_experts_;
};

}  // namespace hone
