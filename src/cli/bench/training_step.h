// Builds and runs training steps of a model with random weights, for benchmarks and the profiler.
#pragma once

#include <cstdint>
#include <functional>
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

// Options that describe a training step of a known shape on random tokens.
struct StepOptions {
  std::string model = "qwen2.5-0.5b";
  std::int64_t layers = 0;
  std::int64_t batch_size = 1;
  std::int64_t seq_len = 1024;
  std::int64_t document_len = 0;
  std::int64_t gradient_accumulation_steps = 1;
  Recomputation gradient_checkpointing = Recomputation::kOff;
  bool activation_offloading = false;
  TorchDtype dtype = TorchDtype::kBfloat16;
  OptimizerType optim = OptimizerType::kAdamwBf16;
  GradientType gradient_dtype = GradientType::kBfloat16;
  DeviceChoice device = DeviceChoice::kAutomatic;
  GemmOptions gemm;
  Fp8Options fp8;
  // The job that the step is a part of, and this process of it; not keys of every command.
  std::int64_t num_processes = 1;
  std::int64_t zero_stage = 0;
  std::int64_t rank = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Training step");
    v("model", model, "Name of a known shape such as qwen2.5-7b, or path of a config.json");
    v("layers", layers, "Number of layers; 0: the model's", at_least(0));
    v("batch_size", batch_size, "Sequences per micro-batch", at_least(1));
    v("seq_len", seq_len, "Tokens per sequence", at_least(1));
    v("document_len", document_len, "Mean tokens per document, lengths are random; 0: one document per sequence",
      at_least(0));
    v("gradient_accumulation_steps", gradient_accumulation_steps, "Micro-batches per optimizer step", at_least(1));
    v("gradient_checkpointing", gradient_checkpointing,
      "Recompute layers in the backward pass, except attention outputs that fit; auto: recompute as little as fits");
    v("activation_offloading", activation_offloading,
      "Move activations to host memory between the forward and the backward pass");
    v("dtype", dtype, "Dtype of the weights");
    v("optim", optim, "Optimizer; unset with dtype float32: adamw_torch");
    v("gradient_dtype", gradient_dtype,
      "Dtype in which gradients of matrices accumulate; unset with dtype float32: float32");
    v("device", device, kDeviceHelp);
    gemm.fields(v);
    fp8.fields(v);
  }

  // Sets optim and gradient_dtype to float32 variants if the weights are float32 and the user did not set them. Throws
  // Error if the options of FP8 contradict each other.
  void complete(const OptionInput& input) {
    check_fp8(fp8, 1, input);
    if (weight_dtype() != DType::kF32) return;
    if (!input.was_set("optim")) optim = OptimizerType::kAdamw;
    if (!input.was_set("gradient_dtype")) gradient_dtype = GradientType::kFloat32;
  }
  [[nodiscard]] DType weight_dtype() const { return dtype == TorchDtype::kFloat32 ? DType::kF32 : DType::kBf16; }
  [[nodiscard]] TrainingOptions training() const;
};

// Creates the model that the options name, without weights. Throws Error if the shape is unknown.
[[nodiscard]] std::unique_ptr<Model> open_shape(const StepOptions& options);
// Lengths of the documents of a micro-batch in order, in tokens. Each sequence of seq_len tokens is filled with
// documents of 0.5 to 1.5 times document_len tokens; its last document is cut to fit. Every call returns the same
// lengths.
[[nodiscard]] std::vector<std::int64_t> document_lengths(const StepOptions& options);
// Returns a micro-batch of random tokens with these documents. Every call returns the same tokens.
[[nodiscard]] HostBatch random_batch(const StepOptions& options, std::int64_t vocabulary);

// Traces the programs of a step, kTrainingProgram and kUpdateProgram, and plans their memory. Allocates nothing.
[[nodiscard]] Workspace trace_step(const StepOptions& options, const Model& model);
// Throws Error if the step does not fit into the memory of its device.
void check_step_fits(const StepOptions& options, const Model& model, const Workspace& workspace);

// A model with random weights, ready to take steps.
class TrainingStep {
 public:
  // `workspace` holds the training and the update program of the model and is not allocated yet. The model, the device
  // and the collective must outlive the object. collective: the sums of the job that the step is a part of; null
  // without a job.
  TrainingStep(const Model& model, Workspace workspace, const OptimizerOptions& optimizer, DType dtype, Device& device,
               Collective* collective = nullptr);

  // Runs one optimizer step over the micro-batches of this process, waits for it and returns the loss of this process,
  // divided by the number of processes.
  double run(std::span<const HostBatch> batches);
  // Runs the same step and adds the times of the step and of its operations to the timeline. Nodes are launched one by
  // one instead of replaying a recording, so the step may take longer than run().
  void run_profiled(std::span<const HostBatch> batches, Timeline& timeline);
  // Runs the same step and reports the nodes of its programs to the observer. done: called after the run of each
  // program, with its batch; an empty one for the quantization of weights and the update.
  using ProgramDone = std::function<void(const Executable& executable, const HostBatch& batch)>;
  void run_observed(std::span<const HostBatch> batches, NodeObserver& observer, const ProgramDone& done);

  [[nodiscard]] const TensorStore& weights() const { return workspace_.store(kWeightStore); }

 private:
  // Weight of each target token in the loss of a step: 1 / number of target tokens of all processes.
  [[nodiscard]] double weight_of(std::span<const HostBatch> batches) const;

  Device& device_;
  Collective* collective_;
  Workspace workspace_;
  Optimizer optimizer_;
};

}  // namespace hone
