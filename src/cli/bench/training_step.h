// Training steps of a model with random weights, to be measured.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/device_option.h"
#include "cli/profile/timeline.h"
#include "data/host_batch.h"
#include "model/model.h"
#include "program/executable.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "workspace/workspace.h"

namespace hone {

// A step of a known shape on random tokens.
struct StepOptions {
  std::string model = "qwen2.5-0.5b";
  std::int64_t layers = 0;
  std::int64_t batch_size = 1;
  std::int64_t seq_len = 1024;
  std::int64_t document_len = 0;
  std::int64_t gradient_accumulation_steps = 1;
  Recomputation gradient_checkpointing = Recomputation::off;
  bool activation_offloading = false;
  TorchDtype dtype = TorchDtype::bfloat16;
  OptimizerType optim = OptimizerType::adamw_bf16;
  GradientType gradient_dtype = GradientType::bfloat16;
  DeviceChoice device = DeviceChoice::automatic;
  GemmOptions gemm;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Training step");
    v("model", model, "One of the known shapes, or a config.json");
    v("layers", layers, "Layers in place of the model's; 0: the model's", at_least(0));
    v("batch_size", batch_size, "Sequences a micro-step", at_least(1));
    v("seq_len", seq_len, "Tokens of a sequence", at_least(1));
    v("document_len", document_len, "Tokens of a document on average, random; 0: one a sequence", at_least(0));
    v("gradient_accumulation_steps", gradient_accumulation_steps, "Micro-steps an optimizer step", at_least(1));
    v("gradient_checkpointing", gradient_checkpointing,
      "Recompute by layer, but for attention's results where there is room; auto: the least that fits");
    v("activation_offloading", activation_offloading, "Keep activations in the host's memory meanwhile");
    v("dtype", dtype, "Type of the weights");
    v("optim", optim, "Optimizer; unset beside float32: adamw_torch");
    v("gradient_dtype", gradient_dtype, "What gradients of matrices are summed in; unset beside float32: float32");
    v("device", device, kDeviceHelp);
    gemm.fields(v);
  }

  // Sets what was not set and goes with the type of the weights.
  void complete(const OptionInput& input) {
    if (weight_dtype() != DType::f32) return;
    if (!input.was_set("optim")) optim = OptimizerType::adamw;
    if (!input.was_set("gradient_dtype")) gradient_dtype = GradientType::float32;
  }
  [[nodiscard]] DType weight_dtype() const { return dtype == TorchDtype::float32 ? DType::f32 : DType::bf16; }
  [[nodiscard]] TrainingOptions training() const;
};

// Throws Error where the shape is unknown.
[[nodiscard]] std::unique_ptr<Model> open_shape(const StepOptions& options);
// Of a micro-batch, in its order: sequences of seq_len tokens, each filled with documents of one half to three halves
// of document_len tokens, the last cut off.
[[nodiscard]] std::vector<std::int64_t> document_lengths(const StepOptions& options);
[[nodiscard]] HostBatch random_batch(const StepOptions& options, std::int64_t vocabulary);

// The programs of a step, kTrainingProgram and the update, and what a run of them takes; nothing is allocated.
[[nodiscard]] Workspace trace_step(const StepOptions& options, const Model& model);
// Throws Error where the step does not fit its device.
void check_step_fits(const StepOptions& options, const Model& model, const Workspace& workspace);

// A model with random weights, ready to take steps.
class TrainingStep {
 public:
  // `workspace`: with kTrainingProgram and the update of the model, not allocated yet.
  TrainingStep(const Model& model, Workspace workspace, const OptimizerOptions& optimizer, DType dtype, Device& device);

  // One optimizer step over the batches, waited for; returns the loss.
  double run(std::span<const HostBatch> batches);
  // The same, with the step and the operations of its runs added to the timeline.
  void run_profiled(std::span<const HostBatch> batches, Timeline& timeline);

  [[nodiscard]] const TensorStore& weights() const { return workspace_.store(kWeightStore); }

 private:
  Device& device_;
  Workspace workspace_;
  Optimizer optimizer_;
};

}  // namespace hone
