// Communication of a tensor group, the same on every device.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/collective.h"
#include "core/error.h"
#include "ops/ranks/ranks.h"
#include "program/kernel.h"

namespace hone {

[[nodiscard]] inline Collective& tensor_group() {
  HONE_ASSERT(current_tensor_collective() != nullptr, "a divided program runs without a tensor group");
  return *current_tensor_collective();
}

// Gathers blocks of equal size from all ranks: block r of `all` is that of rank r, and this rank's is there already.
inline void gather_blocks(std::byte* all, std::size_t block_bytes) {
  Collective& group = tensor_group();
  group.all_gather(all, equal_blocks(group.size(), block_bytes));
}

// Workspace of a sum of gradients, in the type in which the ranks add them up.
[[nodiscard]] inline std::size_t summed_gradient_bytes(InputTypes inputs, std::span<const Type>, const Attributes&) {
  return required(inputs, RanksAccumulateIn::dy, "ranks_accumulate").bytes();
}

}  // namespace hone
