// The pass that divides a traced program over a tensor group (Shoeybi et al., "Megatron-LM: Training multi-billion
// parameter language models using model parallelism", 2019): each rank has parts of the weights and computes with them.
// Model code knows nothing of it; each operation's rule (Op::shard) says what a rank computes of a node, and where the
// ranks sum.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "program/program.h"

namespace hone {

// A rank of a tensor group, and the weights and states of which it has an equal part, by name: the dimension along
// which they are divided. Others are whole on all ranks.
struct TensorDivision {
  using Dimensions = std::map<std::string, std::int64_t, std::less<>>;
  int rank = 0;
  int ranks = 1;
  // Ranks have rows of the tokens where they would compute the same of all (sequence parallelism, ops/rank_rows):
  // norms, the residual stream and products with whole weights. Sums over the ranks then leave each rank its rows, and
  // divided operations gather them.
  bool rows = false;
  Dimensions weights;
  Dimensions states;
};

// Returns what the rank computes of a program before any other pass. Inputs and outputs stay whole, and outputs have
// the same bits on all ranks. Throws Error that names an operation which cannot be divided.
[[nodiscard]] Program divide_over_ranks(const Program& program, const TensorDivision& division);

}  // namespace hone
