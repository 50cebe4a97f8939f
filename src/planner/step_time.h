// The cost model of training steps: how long the programs of a run take on a device, from the nodes that they have and
// the device's rates (backend/device_model.h).
//
// A node takes the time of its FLOPs at the rate of its kind and shape, or of its bytes at the rate of a copy. A
// collective that runs next to computation (a start and a wait) takes a share of its time from it and is waited for if
// it takes longer. Others stop the device. The stages of a pipeline run the schedule that training runs
// (train/pipeline_schedule.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backend/device_model.h"
#include "model/stage_model.h"
#include "train/mesh.h"
#include "workspace/workspace.h"

namespace hone {

// Seconds of an optimizer step of the rank that takes the longest, by what it does.
struct StepTime {
  double products = 0;  // GEMMs, those of experts and of the head too
  double attention = 0;
  double kernels = 0;  // other kernels, limited by memory, and the time between nodes
  double update = 0;   // of the optimizer, with the norm of gradients
  double exposed = 0;  // collectives and transfers during which nothing is computed
  double slowed = 0;   // what computation loses to collectives next to it
  double bubble = 0;   // waits of a stage for others

  [[nodiscard]] double total() const { return products + attention + kernels + update + exposed + slowed + bubble; }
  StepTime& add(const StepTime& other, double times = 1);
};

// The work of a step.
struct StepWork {
  Mesh mesh;
  DType dtype = DType::kBf16;
  std::int64_t sequence = 0;       // tokens of a sequence, which attends to itself alone
  std::int64_t tokens = 0;         // of a micro-batch, the capacity of its program
  std::int64_t micro_batches = 1;  // of a step of one rank
  // Bytes of updated weights that ranks gather (zero_stage 1 and 2): those of the data group, and experts of the ranks
  // that have the same ones.
  double gathered_bytes = 0;
  double gathered_expert_bytes = 0;
};

// A stage of a pipeline and its programs.
struct PlannedStage {
  const StageModel* model = nullptr;
  const Workspace* workspace = nullptr;
};

class CostModel {
 public:
  // device: with StepRates. Throws Error that names the device if these, the rate of a GEMM or that of a copy are
  // unknown.
  CostModel(DeviceModel device, StepWork work);

  // Returns the seconds of a run of a program.
  [[nodiscard]] StepTime run(const Program& program) const;
  // Returns the seconds of a step of a rank with these programs (train/language_programs.h), outside of a pipeline.
  [[nodiscard]] StepTime step(const Workspace& workspace) const;
  // The same of a pipeline: the step of its slowest stage. ends_bytes: gradients that the first and the last stage sum.
  [[nodiscard]] StepTime step(std::span<const PlannedStage> stages, std::size_t ends_bytes) const;

 private:
  struct Transfer;
  [[nodiscard]] double product_seconds(const Type& result, double flops) const;
  [[nodiscard]] double grouped_seconds(const Program& program, const Node& node, double flops) const;
  [[nodiscard]] double attention_seconds(std::string_view op, double flops) const;
  [[nodiscard]] double update_seconds(const Program& program, const Node& node, const Cost& cost) const;
  [[nodiscard]] double collective_seconds(double bytes, double bus_share) const;
  [[nodiscard]] Transfer transfer(const Program& program, const Node& node) const;
  void add_node(const Program& program, const Node& node, StepTime& time) const;
  [[nodiscard]] double gather_seconds() const;

  DeviceModel device_;
  StepRates rates_;
  double gemm_flops_;
  StepWork work_;
};

}  // namespace hone
