// Communication of an expert group, the same on every device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/collective.h"
#include "core/error.h"
#include "ops/expert_ranks/expert_ranks.h"
#include "program/kernel.h"

namespace hone {

[[nodiscard]] inline Collective& expert_group() {
  HONE_ASSERT(current_expert_collective() != nullptr, "a program with divided experts runs without an expert group");
  return *current_expert_collective();
}

// Writes the start of this rank and of all others to starts [ranks, experts + 1].
inline void gather_starts(const KernelCall& call) {
  Collective& group = expert_group();
  const TensorView& starts = call.out(ExpertRanksStartOut::starts);
  const std::size_t bytes = call.in(0).type->bytes();
  HONE_ASSERT(starts.capacity() == group.size(), starts.capacity(), " ranks in a group of ", group.size());
  group.copy(starts.data + static_cast<std::size_t>(group.rank()) * bytes, call.in(0).data, bytes);
  group.all_gather(starts.data, equal_blocks(group.size(), bytes));
}

// Bytes of the rows of all ranks.
[[nodiscard]] inline std::size_t bytes_of_all(const Type& x, const Type& position, const ExpertRanksAttributes& a) {
  const auto rows = static_cast<std::size_t>(a.ranks * most_rows_to_rank(position, a));
  return rows * static_cast<std::size_t>(x.row_size()) * size_of(x.dtype);
}

}  // namespace hone
