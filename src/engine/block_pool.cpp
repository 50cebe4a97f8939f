#include "engine/block_pool.h"

#include <ranges>

#include "core/error.h"

namespace hone {

BlockPool::BlockPool(std::int64_t num_blocks) : blocks_(static_cast<std::size_t>(num_blocks) + 1) {
  const BlockId end = ring_end();
  at(end) = {.previous = end, .next = end};
  for (BlockId block = 0; block < end; ++block) link_before(block, end);
}

BlockId BlockPool::take() {
  HONE_ASSERT(free_blocks_ > 0, "all ", num_blocks(), " blocks are in use");
  const BlockId block = at(ring_end()).next;
  unlink(block);
  at(block).references = 1;
  at(block).kept = false;
  return block;
}

void BlockPool::add_references(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    check(block);
    if (at(block).references == 0) {
      HONE_ASSERT(at(block).kept, "block ", block, " is free and has no contents");
      unlink(block);
    }
    ++at(block).references;
  }
}

void BlockPool::release(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks | std::views::reverse) {
    check(block);
    HONE_ASSERT(at(block).references > 0, "block ", block, " is released twice");
    if (--at(block).references > 0) continue;
    link_before(block, at(block).kept ? ring_end() : at(ring_end()).next);
  }
}

void BlockPool::keep(BlockId block) {
  check(block);
  HONE_ASSERT(at(block).references > 0, "block ", block, " is free");
  at(block).kept = true;
}

void BlockPool::check(BlockId block) const {
  HONE_ASSERT(block >= 0 && block < ring_end(), "there is no block ", block, " among ", num_blocks());
}

void BlockPool::link_before(BlockId block, BlockId next) {
  const BlockId previous = at(next).previous;
  at(block).previous = previous;
  at(block).next = next;
  at(previous).next = block;
  at(next).previous = block;
  ++free_blocks_;
}

void BlockPool::unlink(BlockId block) {
  at(at(block).previous).next = at(block).next;
  at(at(block).next).previous = at(block).previous;
  --free_blocks_;
}

}  // namespace hone
