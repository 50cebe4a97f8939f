// Runs small models by the ranks of a tensor group in one process, and returns losses and gradients of whole weights.
#pragma once

#include <string>

#include "job/rank_losses.h"
#include "passes/recompute.h"

namespace hone::test {

// Small models of the families: with and without biases, norms of heads, tied heads, and a vocabulary that no number of
// processes divides.
[[nodiscard]] Configs dense_families();

struct TensorGroup {
  int size = 1;       // 1: the whole model
  bool rows = false;  // sequence parallelism
  Recompute recompute = Recompute::kNone;
  int more_capacity = 7;   // of the program than the micro-batch has tokens
  std::size_t budget = 0;  // of activations
};

// Runs one micro-batch of 52 tokens by a thread for each rank. Expects the same bits of losses and of the gradients of
// whole weights on all ranks.
[[nodiscard]] RankLosses tensor_group(const MakeModel& make, const TensorGroup& group);
[[nodiscard]] RankLosses tensor_group(const std::string& config, const TensorGroup& group);

// Returns the training program of rank 0.
[[nodiscard]] Program training_program(const std::string& config, const TensorGroup& group);

}  // namespace hone::test
