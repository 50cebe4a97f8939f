// Blocks of the rows of a context group's ranks, the same on every device.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/collective.h"
#include "core/error.h"
#include "program/kernel.h"

namespace hone {

[[nodiscard]] inline Collective& context_group() {
  HONE_ASSERT(current_context_collective() != nullptr, "a program of divided tokens runs without a context group");
  return *current_context_collective();
}

// Blocks of the same number of bytes for all ranks of this thread's group; `all` holds them in the order of ranks.
class RankBlocks {
 public:
  // all: [ranks x rows of a rank, ...].
  RankBlocks(std::byte* all, std::size_t bytes) : group_(context_group()), all_(all) {
    const auto ranks = static_cast<std::size_t>(group_.size());
    HONE_ASSERT(bytes % ranks == 0, bytes, " bytes of ", ranks, " ranks");
    parts_ = equal_blocks(group_.size(), bytes / ranks);
  }

  [[nodiscard]] std::byte* mine() const { return all_ + parts_[static_cast<std::size_t>(group_.rank())].begin; }
  // Fills the blocks of other ranks.
  void gather() const { group_.all_gather(all_, parts_); }
  // Makes this rank's block the sum of those of all ranks.
  void sum(DType dtype) const { group_.reduce_scatter(all_, dtype, parts_); }

 private:
  Collective& group_;
  std::byte* all_;
  std::vector<ByteRange> parts_;
};

// Writes the sum over the ranks of the input to the output.
inline void sum_context(const KernelCall& call) {
  const TensorView& y = call.out(0);
  context_group().copy(y.data, call.in(0).data, y.type->bytes());
  context_group().all_reduce(y.data, y.dtype(), static_cast<std::size_t>(y.type->elements()));
}

// Workspaces: the blocks of all ranks, which have the bytes of all tokens.
[[nodiscard]] inline std::size_t gathered_bytes(InputTypes, std::span<const Type> outputs, const Attributes&) {
  return outputs[0].bytes();
}

}  // namespace hone
