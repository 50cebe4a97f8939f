#include "engine/prefix_cache.h"

#include <algorithm>

#include "core/error.h"

namespace hone {

std::uint64_t hash_of(const PrefixKey& key) {
  // FNV-1a over whole numbers, then the last steps of MurmurHash3, which spread every bit.
  std::uint64_t hash = 0xCBF29CE484222325u;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001B3u; };
  add(static_cast<std::uint64_t>(key.version));
  add(static_cast<std::uint64_t>(key.adapter));
  add(static_cast<std::uint64_t>(key.parent));
  for (const TokenId token : key.tokens) add(static_cast<std::uint64_t>(token));
  hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCDu;
  hash = (hash ^ (hash >> 33)) * 0xC4CEB9FE1A85EC53u;
  return hash ^ (hash >> 33);
}

PrefixCache::PrefixCache(std::int64_t num_blocks, std::int64_t block_size, Hash hash)
    : pool_(num_blocks),
      block_size_(static_cast<std::size_t>(block_size)),
      hash_(hash),
      entries_(static_cast<std::size_t>(num_blocks)) {}

BlockId PrefixCache::block_with(const PrefixKey& key) const {
  const auto [first, last] = by_hash_.equal_range(hash_(key));
  const auto found = std::find_if(first, last, [&](const auto& candidate) {
    const Entry& e = entry(candidate.second);
    return e.version == key.version && e.adapter == key.adapter && e.parent == key.parent &&
           std::ranges::equal(e.tokens, key.tokens);
  });
  return found == last ? kNoBlock : found->second;
}

std::vector<BlockId> PrefixCache::find(std::span<const TokenId> tokens, std::int64_t adapter) const {
  std::vector<BlockId> found;
  BlockId parent = kNoBlock;
  for (; tokens.size() >= block_size_; tokens = tokens.subspan(block_size_)) {
    parent = block_with({version_, parent, tokens.first(block_size_), adapter});
    if (parent == kNoBlock) break;
    found.push_back(parent);
  }
  return found;
}

BlockId PrefixCache::publish(BlockId parent, BlockId block, std::span<const TokenId> tokens, std::int64_t adapter) {
  HONE_ASSERT(tokens.size() == block_size_ && entry(block).tokens.empty(), "block ", block, " cannot be published");
  const PrefixKey key{version_, parent, tokens, adapter};
  if (const BlockId published = block_with(key); published != kNoBlock) {
    pool_.add_references({&published, 1});
    pool_.release({&block, 1});
    return published;
  }
  if (parent != kNoBlock) {
    HONE_ASSERT(!entry(parent).tokens.empty() && entry(parent).version == version_ && pool_.references(parent) > 0,
                "block ", parent, " before block ", block, " is not held and published");
    ++entry(parent).children;
  }
  const std::uint64_t hash = hash_(key);
  entry(block) = {hash, version_, adapter, parent, 0, {tokens.begin(), tokens.end()}};
  by_hash_.emplace(hash, block);
  pool_.keep(block);
  return block;
}

BlockId PrefixCache::take() {
  const BlockId block = pool_.take();
  if (!entry(block).tokens.empty()) evict(block);
  return block;
}

void PrefixCache::evict(BlockId block) {
  Entry& evicted = entry(block);
  HONE_ASSERT(evicted.children == 0, "block ", block, " is evicted before a block that follows it");
  if (evicted.parent != kNoBlock) --entry(evicted.parent).children;
  const auto [first, last] = by_hash_.equal_range(evicted.hash);
  by_hash_.erase(std::find_if(first, last, [&](const auto& candidate) { return candidate.second == block; }));
  evicted = {};
  ++evicted_;
}

}  // namespace hone
