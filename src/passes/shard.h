// The pass that divides weights and gradients over the ranks of a job (ZeRO stages 2 and 3): a whole weight or gradient
// exists only around the layer that uses it. The pass adds communication and copies only, so no result changes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "program/program.h"

namespace hone {

// The rows of each trainable weight, and of its gradient, that the ranks have.
struct WeightShares {
  int rank = 0;           // of this process
  int expert_member = 0;  // its number among the ranks that have the same experts
  bool weights = false;   // weights are divided too, not gradients alone
  // [ranks + 1] by name of the weight: rank r has the rows cuts[r] to cuts[r + 1] - 1.
  std::map<std::string, std::vector<std::int64_t>, std::less<>> cuts;
  // The weights among them that are divided over the ranks that have the same experts only.
  std::set<std::string, std::less<>> experts;
};

// Returns the program with the bound values of the weights in shares.cuts replaced by this rank's rows of them.
//
// Weights are gathered for each layer and phase that read them, while the layer before it is computed; the backward
// pass gathers them again. A gradient accumulates in an activation; after the layer that completes it, it is summed
// over the ranks and added to this rank's rows while the next layer is computed. Programs of other ranks, of the same
// model with the same passes, do the same operations in the same order.
[[nodiscard]] Program shard_weights(const Program& program, const WeightShares& shares);

}  // namespace hone
