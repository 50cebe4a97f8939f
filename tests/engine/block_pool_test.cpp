// Tests of the blocks' reference counts and of the order of reuse, against a plain model under random use.
#include "engine/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace hone::test {
namespace {

// The pool's contract in its plainest form: the free blocks as two lists.
struct PlainPool {
  std::vector<BlockId> empty;        // free blocks without contents; the last one is reused first
  std::vector<BlockId> kept;         // free blocks with contents; the first one is reused once `empty` is used up
  std::vector<std::int64_t> counts;  // [blocks]
  std::set<BlockId> with_contents;

  explicit PlainPool(std::int64_t num_blocks) : counts(static_cast<std::size_t>(num_blocks), 0) {
    for (auto block = static_cast<BlockId>(num_blocks); block-- > 0;) empty.push_back(block);
  }
  BlockId take() {
    const bool reuses_kept = empty.empty();
    const BlockId block = reuses_kept ? kept.front() : empty.back();
    if (reuses_kept) {
      kept.erase(kept.begin());
    } else {
      empty.pop_back();
    }
    with_contents.erase(block);
    counts[static_cast<std::size_t>(block)] = 1;
    return block;
  }
  void add_reference(BlockId block) {
    std::erase(kept, block);
    ++counts[static_cast<std::size_t>(block)];
  }
  void release(BlockId block) {
    if (--counts[static_cast<std::size_t>(block)] > 0) return;
    (with_contents.contains(block) ? kept : empty).push_back(block);
  }
  [[nodiscard]] std::int64_t free_blocks() const { return std::ssize(empty) + std::ssize(kept); }
};

// Owners take blocks, share them, keep their contents, share what is free but kept, and leave, in random order.
TEST(BlockPool, CountsAreRightAndNoBlockIsLost) {
  constexpr std::int64_t kBlocks = 23;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const RandomStream random(seed, "blocks");
    BlockPool pool(kBlocks);
    PlainPool plain(kBlocks);
    std::vector<std::vector<BlockId>> owners;
    std::uint64_t at = 0;
    const auto below = [&](std::size_t bound) {
      return static_cast<std::size_t>(random.below(at++, static_cast<std::uint64_t>(bound)));
    };
    for (int step = 0; step < 600; ++step) {
      const std::size_t action = below(6);
      if (action <= 1 && plain.free_blocks() > 0) {
        if (owners.empty() || below(3) == 0) owners.emplace_back();
        const BlockId block = pool.take();
        ASSERT_EQ(block, plain.take());
        owners[below(owners.size())].push_back(block);
      } else if (action == 2 && !owners.empty()) {  // a fork shares all blocks
        const std::vector<BlockId> shared = owners[below(owners.size())];
        pool.add_references(shared);
        for (const BlockId block : shared) plain.add_reference(block);
        owners.push_back(shared);
      } else if (action == 3 && !plain.kept.empty()) {  // a hit
        const std::vector<BlockId> hit{plain.kept[below(plain.kept.size())]};
        pool.add_references(hit);
        plain.add_reference(hit[0]);
        owners.push_back(hit);
      } else if (action == 4 && !owners.empty()) {
        for (const BlockId block : owners[below(owners.size())]) {
          pool.keep(block);
          plain.with_contents.insert(block);
        }
      } else if (action == 5 && !owners.empty()) {
        const auto leaving = owners.begin() + static_cast<std::ptrdiff_t>(below(owners.size()));
        pool.release(*leaving);
        for (auto block = leaving->rbegin(); block != leaving->rend(); ++block) plain.release(*block);
        owners.erase(leaving);
      }
      ASSERT_EQ(pool.free_blocks(), plain.free_blocks());
      for (BlockId block = 0; block < kBlocks; ++block) {
        std::int64_t owned = 0;
        for (const std::vector<BlockId>& owner : owners) owned += std::ranges::count(owner, block);
        ASSERT_EQ(pool.references(block), owned);
        ASSERT_EQ(plain.counts[static_cast<std::size_t>(block)], owned);
      }
    }
    for (const std::vector<BlockId>& owner : owners) pool.release(owner);
    EXPECT_EQ(pool.free_blocks(), kBlocks);
    std::set<BlockId> all;
    while (pool.free_blocks() > 0) EXPECT_TRUE(all.insert(pool.take()).second);
    EXPECT_EQ(std::ssize(all), kBlocks);
  }
}

TEST(BlockPool, ReusesKeptBlocksLastAndEndsOfSequencesFirst) {
  BlockPool pool(4);
  const std::vector<BlockId> sequence{pool.take(), pool.take(), pool.take()};
  pool.keep(sequence[0]);
  pool.keep(sequence[1]);
  pool.release(sequence);
  EXPECT_EQ(pool.free_blocks(), 4);
  EXPECT_EQ(pool.take(), sequence[2]);  // without contents
  EXPECT_EQ(pool.take(), 3);
  EXPECT_EQ(pool.take(), sequence[1]);
  EXPECT_EQ(pool.take(), sequence[0]);
}

TEST(BlockPool, RefusesWhatLosesOrDoublesABlock) {
  BlockPool pool(2);
  const std::vector<BlockId> block{pool.take()};
  EXPECT_THROW(pool.add_references(std::vector<BlockId>{1}), Defect);
  EXPECT_THROW(pool.release(std::vector<BlockId>{2}), Defect);
  EXPECT_THROW(pool.release(std::vector<BlockId>{-1}), Defect);
  pool.release(block);
  EXPECT_THROW(pool.release(block), Defect);
  EXPECT_THROW(pool.keep(block[0]), Defect);
  (void)pool.take();
  (void)pool.take();
  EXPECT_THROW((void)pool.take(), Defect);
}

}  // namespace
}  // namespace hone::test
