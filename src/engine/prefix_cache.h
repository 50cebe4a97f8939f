// The prefix cache: finds KV-cache blocks by the tokens whose keys and values they hold, so that a sequence does not
// compute again what an earlier one with the same beginning has computed.
//
// A full block is published under a key: the version of the weights, the adapter, the block before it in its sequence,
// and its block_size tokens. Because the block before it was published in the same way, equal keys mean equal tokens
// from the start of the sequence. The keys are hashed for the lookup and compared whole, so a collision of hashes costs
// a comparison and never gives another block. An engine has one model and one dtype of keys and values, so these are
// not part of the key.
//
// Published blocks keep their contents when the last sequence has left, until their memory is needed. The block of
// which no sequence has made use for the longest time is evicted first. Whoever holds a published block holds those
// before it too, and releases them after it, so a block is never evicted before those that follow it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/block_pool.h"
#include "text/tokenizer.h"

namespace hone {

inline constexpr BlockId kNoBlock = -1;

struct PrefixKey {
  std::int64_t version = 0;           // PrefixCache::version() at publication
  BlockId parent = kNoBlock;          // the block before it; kNoBlock: it is the first one
  std::span<const TokenId> tokens{};  // [block_size]
  std::int64_t adapter = 0;           // RequestAdapter::id
};
// Returns a hash of all fields of a key.
[[nodiscard]] std::uint64_t hash_of(const PrefixKey& key);

class PrefixCache {
 public:
  using Hash = std::uint64_t (*)(const PrefixKey&);

  // Manages num_blocks blocks, all of them free, of block_size tokens each.
  PrefixCache(std::int64_t num_blocks, std::int64_t block_size, Hash hash = hash_of);

  [[nodiscard]] const BlockPool& pool() const { return pool_; }
  [[nodiscard]] std::int64_t evicted_blocks() const { return evicted_; }  // in total
  // The number of calls of invalidate(). Sequences publish only blocks that were computed in the current version.
  [[nodiscard]] std::int64_t version() const { return version_; }
  // Makes every published block unreachable, because the weights or the memory of the blocks have changed.
  void invalidate() { ++version_; }

  // Returns the published blocks of the longest prefix of `tokens`, in order. Adds no reference.
  [[nodiscard]] std::vector<BlockId> find(std::span<const TokenId> tokens, std::int64_t adapter = 0) const;
  // Publishes a full block that is in use and follows `parent`, which is published in the current version (kNoBlock: it
  // is the first of its sequence). Returns the block that the caller holds from now on: if a block with the same key is
  // published already, the caller's reference moves there.
  [[nodiscard]] BlockId publish(BlockId parent, BlockId block, std::span<const TokenId> tokens,
                                std::int64_t adapter = 0);

  // Returns a free block with one reference, and evicts its contents if it has any. Throws Defect if no block is free.
  [[nodiscard]] BlockId take();
  // Adds a reference to each block of the result of find().
  void hold(std::span<const BlockId> blocks) { pool_.add_references(blocks); }
  // Removes a reference from each block of a sequence, given whole and in order.
  void release(std::span<const BlockId> blocks) { pool_.release(blocks); }

 private:
  // The key of a published block.
  struct Entry {
    std::uint64_t hash = 0;
    std::int64_t version = 0;
    std::int64_t adapter = 0;
    BlockId parent = kNoBlock;
    std::int32_t children = 0;    // published blocks whose parent is this one
    std::vector<TokenId> tokens;  // [block_size]; empty: the block is not published
  };

  [[nodiscard]] const Entry& entry(BlockId block) const { return entries_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] Entry& entry(BlockId block) { return entries_[static_cast<std::size_t>(block)]; }
  // Returns the published block with this key, or kNoBlock.
  [[nodiscard]] BlockId block_with(const PrefixKey& key) const;
  void evict(BlockId block);

  BlockPool pool_;
  std::size_t block_size_;
  Hash hash_;
  std::vector<Entry> entries_;                               // [num_blocks]
  std::unordered_multimap<std::uint64_t, BlockId> by_hash_;  // published blocks
  std::int64_t version_ = 0;
  std::int64_t evicted_ = 0;
};

}  // namespace hone
