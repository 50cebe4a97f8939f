#include "engine/block_pool.h"

#include "core/error.h"

namespace hone {

BlockPool::BlockPool(std::int64_t num_blocks)
    : num_blocks_(num_blocks), is_free_(static_cast<std::size_t>(num_blocks), true) {
  for (std::int64_t block = num_blocks; block-- > 0;) free_.push_back(static_cast<BlockId>(block));
}

BlockId BlockPool::take() {
  HONE_ASSERT(!free_.empty(), "all ", num_blocks_, " blocks are in use");
  const BlockId block = free_.back();
  free_.pop_back();
  is_free_[static_cast<std::size_t>(block)] = false;
  return block;
}

void BlockPool::give_back(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    HONE_ASSERT(block >= 0 && block < num_blocks_ && !is_free_[static_cast<std::size_t>(block)], "block ", block,
                " is given back twice");
    is_free_[static_cast<std::size_t>(block)] = true;
    free_.push_back(block);
  }
}

}  // namespace hone
