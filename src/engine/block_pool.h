// The blocks of the KV cache (pages of block_size tokens each): how many users each has, and which free one is reused
// next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hone {

using BlockId = std::int32_t;

// A block is free if it has no references. A free block whose contents are kept for later is reused after all other
// free blocks; of several kept ones, the one that became free first is reused first.
class BlockPool {
 public:
  // A pool whose blocks are all free.
  explicit BlockPool(std::int64_t num_blocks);

  [[nodiscard]] std::int64_t num_blocks() const { return static_cast<std::int64_t>(blocks_.size()) - 1; }
  [[nodiscard]] std::int64_t free_blocks() const { return free_blocks_; }  // those with kept contents included
  [[nodiscard]] std::int64_t references(BlockId block) const { return at(block).references; }

  // Returns the block that is reused next, with one reference. Its contents are no longer kept. Throws Defect if no
  // block is free.
  [[nodiscard]] BlockId take();
  // Adds a reference to each block. A free one must have kept contents.
  void add_references(std::span<const BlockId> blocks);
  // Removes a reference from each block, from the last block to the first, so that the end of a sequence is reused
  // before its beginning. Throws Defect if one of them is free already.
  void release(std::span<const BlockId> blocks);
  // Keeps the contents of a block that is in use, until take() returns it.
  void keep(BlockId block);

 private:
  // The free blocks are a ring through an additional last element, in the order in which they are reused.
  struct Block {
    BlockId previous = 0;
    BlockId next = 0;
    std::int32_t references = 0;
    bool kept = false;
  };

  [[nodiscard]] const Block& at(BlockId block) const { return blocks_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] Block& at(BlockId block) { return blocks_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] BlockId ring_end() const { return static_cast<BlockId>(num_blocks()); }
  void check(BlockId block) const;
  void link_before(BlockId block, BlockId next);  // makes a block free
  void unlink(BlockId block);

  std::vector<Block> blocks_;  // [num_blocks + 1]
  std::int64_t free_blocks_ = 0;
};

}  // namespace hone
