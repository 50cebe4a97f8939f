// The programs of a stage of a pipeline and what they keep of the micro-batches under way.
//
// In each chunk of the stage a micro-batch is in one of most_under_way() slots from the arrival of its values to the
// end of its backward pass. A slot is a store of states: what the stage has received, the memory in which it exchanges
// values and gradients, and the activations that the backward pass reads: all of them, or as many as the memory has
// room for, and the backward program computes the others again. If not even the least fits, or layers are recomputed
// anyway, the stage keeps only what it has received, and its backward program begins with the forward pass. The chunk
// with the head computes both passes of a micro-batch together, so that nothing is computed twice there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/stage_model.h"
#include "passes/sum_gradients.h"
#include "train/loss_program.h"
#include "train/pipeline_schedule.h"

namespace hone {

// The shape of a model's pipeline.
[[nodiscard]] PipelineShape shape_of(const StageModel& model);

// Numbers the slots of a stage. The last chunk has the first ones, so that a program without a number is of the chunk
// that may have a loss.
class StageSlots {
 public:
  explicit StageSlots(const StageModel& model);
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t first(int chunk) const { return chunks_[static_cast<std::size_t>(chunk)].first; }
  [[nodiscard]] std::int64_t count_of(int chunk) const { return chunks_[static_cast<std::size_t>(chunk)].count; }
  // Returns the slot of a micro-batch in a chunk.
  [[nodiscard]] std::int64_t of(int chunk, std::int64_t micro_batch) const {
    return first(chunk) + micro_batch % count_of(chunk);
  }

 private:
  struct Chunk {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  std::vector<Chunk> chunks_;
  std::int64_t count_ = 0;
};
// Returns the number with which in_slot() names a chunk's program of evaluations and its store.
[[nodiscard]] std::int64_t evaluation_slot(const StageModel& model, int chunk);

// Name of a program that runs in a slot, and of the slot's store.
[[nodiscard]] std::string in_slot(std::string_view program, std::int64_t slot);
inline constexpr const char* kStageForwardProgram = "forward of training";  // missing in the chunk with the head
inline constexpr const char* kEvaluationSlot = "evaluation slot";
[[nodiscard]] std::string slot_store(std::int64_t slot);

// Adds the training programs of the model's stage for each slot. options: of the whole program; sums: the job sums
// gradients within programs, so that kSummingProgram is added as well, those of divided experts over other ranks.
void add_stage_training(Workspace& workspace, const Model& model, const LossProgramOptions& options, bool sums,
                        const ExpertGradients& experts = {});
// Adds kEvaluationProgram for each chunk, with separate slots.
void add_stage_evaluation(Workspace& workspace, const Model& model, const LossProgramOptions& options);

// Returns the names of the programs that compute both passes of a micro-batch, one or two for each chunk of a stage.
[[nodiscard]] std::vector<std::string> micro_batch_programs(const Model& model);
// Returns the cost of both passes on a batch. tokens and context_size: as in work_of().
[[nodiscard]] BatchWork work_of_training(const Workspace& workspace, const Model& model, std::int64_t tokens,
                                         int context_size);

}  // namespace hone
