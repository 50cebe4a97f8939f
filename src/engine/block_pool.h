// The free list of KV-cache blocks (pages of block_size tokens each).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hone {

using BlockId = std::int32_t;

class BlockPool {
 public:
  explicit BlockPool(std::int64_t num_blocks);

  [[nodiscard]] std::int64_t num_blocks() const { return num_blocks_; }
  [[nodiscard]] std::int64_t free_blocks() const { return static_cast<std::int64_t>(free_.size()); }
  // Takes a free block. Throws Defect if there is none.
  [[nodiscard]] BlockId take();
  // Returns blocks to the pool. Throws Defect if one of them is free already.
  void give_back(std::span<const BlockId> blocks);

 private:
  std::int64_t num_blocks_;
  std::vector<BlockId> free_;  // the last one is taken first
  std::vector<bool> is_free_;
};

}  // namespace hone
