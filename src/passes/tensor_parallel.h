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

// This rank's part of a weight that is divided.
struct WeightPartType {
  Type type;
  std::int64_t division = 0;  // dimension along which it is divided (program/shard_builder.h)
};

// A rank of a tensor group, and its parts of the weights by name. Other weights are whole on all ranks.
struct TensorDivision {
  int rank = 0;
  int ranks = 1;
  std::map<std::string, WeightPartType, std::less<>> weights;
};

// Returns what the rank computes of a program before any other pass. Inputs and outputs stay whole, and outputs have
// the same bits on all ranks. Throws Error that names an operation which cannot be divided.
[[nodiscard]] Program divide_over_ranks(const Program& program, const TensorDivision& division);

}  // namespace hone
