// The programs of a stage of a pipeline and what they keep of the micro-batches under way.
//
// A micro-batch is in one of most_under_way() slots from the arrival of its values to the end of its backward pass. A
// slot is a store of states: what the stage has received, the memory in which it exchanges values and gradients, and
// the activations that the backward pass reads. If they take too much memory, or layers are recomputed anyway, the
// stage keeps only what it has received, and its backward program computes the forward pass again. The last stage
// computes both passes of a micro-batch together, so that nothing is computed twice there.
#pragma once

#include <cstdint>
#include <string>

#include "passes/sum_gradients.h"
#include "train/loss_program.h"

namespace hone {

// Name of a program that runs in a slot, and of the slot's store.
[[nodiscard]] std::string in_slot(std::string_view program, std::int64_t slot);
inline constexpr const char* kStageForwardProgram = "forward of training";  // missing on the last stage
inline constexpr const char* kEvaluationSlot = "evaluation slot";
[[nodiscard]] std::string slot_store(std::int64_t slot);

// Adds the training programs of the model's stage for each slot. options: of the whole program; sums: the job sums
// gradients within programs, so that kSummingProgram is added as well, those of divided experts over other ranks.
void add_stage_training(Workspace& workspace, const Model& model, const LossProgramOptions& options, bool sums,
                        const ExpertGradients& experts = {});
// Adds kEvaluationProgram with a separate slot.
void add_stage_evaluation(Workspace& workspace, const Model& model, const LossProgramOptions& options);

// Returns the cost of both passes on a batch, which are one training program or two programs of a stage. tokens and
// context_size: as in work_of().
[[nodiscard]] BatchWork work_of_training(const Workspace& workspace, std::int64_t tokens, int context_size);

}  // namespace hone
