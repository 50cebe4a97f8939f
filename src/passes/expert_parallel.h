// The pass that divides the experts of a traced program over an expert group (Lepikhin et al., "GShard: Scaling giant
// models with conditional computation and automatic sharding", 2020). Each rank has its experts' weights and computes
// other tokens than the others; the rows of all ranks are sent to the rank of their expert, and back
// (ops/expert_ranks). Model code knows nothing of it. A program of a rank of a tensor group (passes/tensor_parallel.h)
// has some of the experts already, which this pass divides further: rows travel between the ranks of different tensor
// groups that have the same of these experts.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "program/program.h"

namespace hone {

// An expert group, and the weights of which a rank has the rows of its experts, by name. Others are whole.
struct ExpertDivision {
  int ranks = 1;
  std::set<std::string, std::less<>> weights;
};

// Returns what a rank computes of a program before any other pass. Rows of experts (ops/grouped_linear) are sent before
// the first node that multiplies them by a divided weight, stay there through activation functions
// (OpCategory::kActivation), which compute each row by itself, and are sent back for the first node of another kind.
// Their capacity is that of the case in which all tokens of the group choose the experts of one rank, so that no row is
// dropped. Throws Error if the ranks do not divide the experts, or if another operation reads a divided weight.
[[nodiscard]] Program divide_experts(const Program& program, const ExpertDivision& division);

}  // namespace hone
