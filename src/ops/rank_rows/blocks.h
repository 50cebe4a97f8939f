// Blocks of rows of a tensor group's ranks, the same on every device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/ranks/communication.h"
#include "program/kernel.h"

namespace hone {

// Rows of a whole value and those of them that each rank of this thread's group has.
class RowBlocks {
 public:
  // rows: number of first rows of the whole value that the ranks exchange; rank_rows: this rank's rows, whose capacity
  // is that of a block.
  RowBlocks(std::int64_t rows, const TensorView& rank_rows)
      : group_(tensor_group()),
        row_bytes_(static_cast<std::size_t>(rank_rows.row_size()) * size_of(rank_rows.dtype())),
        dtype_(rank_rows.dtype()) {
    const std::int64_t block = rank_rows.capacity();
    for (std::int64_t r = 0; r < group_.size(); ++r) {
      const auto bytes = [&](std::int64_t row) { return static_cast<std::size_t>(std::min(row, rows)) * row_bytes_; };
      parts_.push_back({bytes(r * block), bytes((r + 1) * block)});
    }
  }

  // Bytes of this rank's rows within the whole value. They may be fewer than there is room for.
  [[nodiscard]] std::size_t begin() const { return mine().begin; }
  [[nodiscard]] std::size_t bytes() const { return mine().end - mine().begin; }
  [[nodiscard]] std::int64_t rows() const {
    return static_cast<std::int64_t>(row_bytes_ > 0 ? bytes() / row_bytes_ : 0);
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const { group_.copy(to, from, bytes); }
  // Fills the rows of other ranks.
  void gather(std::byte* whole) const { group_.all_gather(whole, parts_); }
  // Makes this rank's rows the sums of those of all ranks.
  void sum(std::byte* whole) const { group_.reduce_scatter(whole, dtype_, parts_); }

 private:
  [[nodiscard]] const ByteRange& mine() const { return parts_[static_cast<std::size_t>(group_.rank())]; }

  Collective& group_;
  std::size_t row_bytes_;
  DType dtype_;
  std::vector<ByteRange> parts_;
};

// Workspace of a sum: the whole value, of which the ranks exchange parts.
[[nodiscard]] inline std::size_t summed_bytes(InputTypes inputs, std::span<const Type>, const Attributes&) {
  return required(inputs, 0, "rank_rows_sum").bytes();
}

}  // namespace hone
