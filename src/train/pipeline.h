// Runs the micro-batches of a step through the stages of a pipeline, one of which this process has.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/collective.h"
#include "data/host_batch.h"
#include "model/stage_model.h"
#include "train/job.h"
#include "train/loss_program.h"
#include "train/pipeline_schedule.h"
#include "train/stage_programs.h"
#include "workspace/workspace.h"

namespace hone {

class Pipeline {
 public:
  // Uses the programs of train/stage_programs.h in a workspace that is allocated, and the pipeline's operations of this
  // thread. All ranks of the job create it together.
  Pipeline(Workspace& workspace, const StageModel& model, const Job& job);

  // Draws of dropout: of which step, and the index of its first micro-batch.
  struct Draws {
    std::uint64_t seed = 0;
    std::int64_t step = 0;
    std::int64_t first = 0;
  };
  // Computes losses and gradients of micro-batches, which are the same on all stages and at least one, and sums the
  // gradients of weights that two stages have. Returns the sums of the losses, which only the last stage has.
  [[nodiscard]] LossSums train(std::span<const HostBatch> batches, double weight, const Draws& draws);
  // Computes losses and adds them to `sums` on the last stage.
  void evaluate(std::span<const HostBatch> batches, LossSums& sums);

 private:
  // A tensor that crosses a cut.
  using Piece = std::span<std::byte>;
  // Tensors of one slot by their direction.
  struct Slot {
    std::vector<Piece> received, sent, gradients_of_received, gradients_of_sent;
  };

  [[nodiscard]] Slot slot_of(const std::string& store) const;
  void exchange(int stage, std::span<const Piece> out, std::span<const Piece> in);
  // Does an exchange of the schedule; slot(c, i) is that of micro-batch i in chunk c.
  template <class SlotOf>
  void exchange(const PipelineAction& action, const SlotOf& slot);
  void sum_shared();

  Workspace& workspace_;
  const StageModel& model_;
  PipelineShape shape_;
  Collective& stages_;                // of the pipeline
  std::unique_ptr<Collective> ends_;  // of its first and last stage, if both have a weight
  StageSlots numbers_;
  std::vector<Slot> slots_;  // in the order of numbers_
};

// Returns the pipeline of a model that is a stage of one, otherwise null. All ranks of the job call it.
[[nodiscard]] std::unique_ptr<Pipeline> make_pipeline(Workspace& workspace, const Model& model, const Job& job);

}  // namespace hone
