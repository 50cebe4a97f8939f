// Tests of the prefix cache against a plain map from whole prefixes to blocks, with and without colliding hashes.
#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace hone::test {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::size_t kBlockSize = 3;

std::uint64_t colliding_hash(const PrefixKey&) { return 7; }
std::uint64_t narrow_hash(const PrefixKey& key) { return hash_of(key) % 4; }

// A sequence whose blocks are all full and published.
struct Held {
  Tokens tokens;
  std::vector<BlockId> blocks;
};

// A cache next to what it must hold.
class CheckedCache {
 public:
  CheckedCache(std::int64_t num_blocks, PrefixCache::Hash hash) : cache_(num_blocks, kBlockSize, hash) {}

  [[nodiscard]] PrefixCache& cache() { return cache_; }

  void expect_finds(const Tokens& tokens) const {
    std::vector<BlockId> expected;
    for (std::size_t end = kBlockSize; end <= tokens.size(); end += kBlockSize) {
      const auto last = tokens.begin() + static_cast<std::ptrdiff_t>(end);
      const auto found = published_.find({cache_.version(), Tokens(tokens.begin(), last)});
      if (found == published_.end()) break;
      expected.push_back(found->second);
    }
    ASSERT_EQ(cache_.find(tokens), expected);
  }

  // Holds what is published of a sequence and computes and publishes the rest. Returns nothing if no block is free.
  std::vector<BlockId> add(const Tokens& tokens) {
    std::vector<BlockId> blocks = cache_.find(tokens);
    cache_.hold(blocks);
    while ((blocks.size() + 1) * kBlockSize <= tokens.size()) {
      if (cache_.pool().free_blocks() == 0) {
        cache_.release(blocks);
        return {};
      }
      const BlockId block = cache_.take();
      std::erase_if(published_, [&](const auto& entry) { return entry.second == block; });
      const std::size_t begin = blocks.size() * kBlockSize;
      const BlockId parent = blocks.empty() ? kNoBlock : blocks.back();
      blocks.push_back(cache_.publish(parent, block, std::span(tokens).subspan(begin, kBlockSize)));
      EXPECT_EQ(blocks.back(), block);
      const auto end = static_cast<std::ptrdiff_t>(begin + kBlockSize);
      EXPECT_TRUE(published_.insert({{cache_.version(), Tokens(tokens.begin(), tokens.begin() + end)}, block}).second);
    }
    return blocks;
  }

 private:
  PrefixCache cache_;
  std::map<std::pair<std::int64_t, Tokens>, BlockId> published_;  // by version and whole prefix
};

TEST(PrefixCache, FindsExactlyWhatWasPublished) {
  for (const PrefixCache::Hash hash : {hash_of, narrow_hash, colliding_hash}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const RandomStream random(seed, "prefixes");
      CheckedCache checked(17, hash);
      PrefixCache& cache = checked.cache();
      std::vector<Held> held;
      std::uint64_t at = 0;
      for (int step = 0; step < 300; ++step) {
        Tokens tokens(static_cast<std::size_t>(random.below(at++, 14)));
        for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(at++, 2));
        checked.expect_finds(tokens);
        const std::uint64_t action = random.below(at++, 20);
        if (action == 0) {
          cache.invalidate();
          ASSERT_TRUE(cache.find(tokens).empty());
          for (const Held& each : held) cache.release(each.blocks);
          held.clear();
        } else if (action < 12 || held.empty()) {
          std::vector<BlockId> blocks = checked.add(tokens);
          held.push_back({std::move(tokens), std::move(blocks)});
        } else {
          const auto leaving = held.begin() + static_cast<std::ptrdiff_t>(random.below(at++, held.size()));
          cache.release(leaving->blocks);
          held.erase(leaving);
        }
        for (BlockId block = 0; block < 17; ++block) {
          std::int64_t owners = 0;
          for (const Held& each : held) owners += std::ranges::count(each.blocks, block);
          ASSERT_EQ(cache.pool().references(block), owners);
        }
      }
      EXPECT_GT(cache.evicted_blocks(), 0);
      for (const Held& each : held) cache.release(each.blocks);
      EXPECT_EQ(cache.pool().free_blocks(), 17);
    }
  }
}

TEST(PrefixCache, EvictsTheLeastRecentlyUsedFirst) {
  CheckedCache checked(4, hash_of);
  PrefixCache& cache = checked.cache();
  const Tokens first{1, 1, 1, 2, 2, 2};
  const Tokens second{3, 3, 3, 4, 4, 4};
  cache.release(checked.add(first));
  cache.release(checked.add(second));
  cache.release(checked.add(first));  // used again, so `second` has not been used for longer
  EXPECT_EQ(cache.evicted_blocks(), 0);
  (void)cache.take();
  EXPECT_EQ(cache.find(second).size(), 1u);  // the end of a sequence goes before its beginning
  (void)cache.take();
  EXPECT_EQ(cache.find(second).size(), 0u);
  EXPECT_EQ(cache.find(first).size(), 2u);
  EXPECT_EQ(cache.evicted_blocks(), 2);
}

TEST(PrefixCache, EqualBlocksBecomeOne) {
  PrefixCache cache(4, kBlockSize);
  const Tokens tokens{5, 6, 7};
  const BlockId first = cache.take();
  const BlockId second = cache.take();
  EXPECT_EQ(cache.publish(kNoBlock, first, tokens), first);
  EXPECT_EQ(cache.publish(kNoBlock, second, tokens), first);
  EXPECT_EQ(cache.pool().references(first), 2);
  EXPECT_EQ(cache.pool().references(second), 0);
  EXPECT_EQ(cache.pool().free_blocks(), 3);
}

TEST(PrefixCache, RefusesABlockWhoseParentIsNotPublished) {
  PrefixCache cache(4, kBlockSize);
  const BlockId parent = cache.take();
  const BlockId block = cache.take();
  const Tokens tokens{5, 6, 7};
  EXPECT_THROW((void)cache.publish(parent, block, tokens), Defect);
  EXPECT_THROW((void)cache.publish(kNoBlock, block, std::span(tokens).first(2)), Defect);
  EXPECT_EQ(cache.publish(kNoBlock, parent, tokens), parent);
  EXPECT_THROW((void)cache.publish(kNoBlock, parent, tokens), Defect);
}

}  // namespace
}  // namespace hone::test
