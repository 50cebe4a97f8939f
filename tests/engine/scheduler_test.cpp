// Tests of the scheduler's invariants under random loads.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/random.h"

namespace hone::test {
namespace {

Sequence sequence_of(RequestId id, std::int64_t prompt) {
  Sequence sequence;
  sequence.id = id;
  sequence.tokens.assign(static_cast<std::size_t>(prompt), 1);
  sequence.prompt_length = prompt;
  return sequence;
}

// Runs `count` requests to completion on a small pool and checks every step. If `ahead`, a sequence whose last token is
// being sampled leaves a step later.
void run_load(std::uint64_t seed, std::int64_t num_blocks, std::int64_t count, bool ahead) {
  const SchedulerLimits limits{
      .max_num_seqs = 5, .max_batch_tokens = 24, .block_size = 4, .enable_prefix_caching = false};
  Scheduler scheduler(limits, num_blocks);
  const RandomStream random(seed, "load");
  std::map<RequestId, std::int64_t> wanted;
  std::deque<Sequence> sequences;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>(2 * i);
    wanted[i] = 1 + static_cast<std::int64_t>(random.below(at, 20));
    sequences.push_back(sequence_of(i, 1 + static_cast<std::int64_t>(random.below(at + 1, 40))));
    scheduler.add(sequences.back());
  }
  std::int64_t steps = 0;
  std::vector<RequestId> ending, leaving;
  while (scheduler.has_work()) {
    ASSERT_LT(++steps, 10000) << "no progress";
    const std::vector<ScheduledChunk> chunks = scheduler.schedule();
    std::int64_t tokens = 0;
    std::set<BlockId> written;
    std::set<const Sequence*> seen;
    for (const ScheduledChunk& chunk : chunks) {
      ASSERT_GT(chunk.count, 0);
      ASSERT_FALSE(chunk.sequence->complete);
      ASSERT_TRUE(seen.insert(chunk.sequence).second) << "a sequence twice in a step";
      ASSERT_EQ(chunk.samples, chunk.count == chunk.sequence->pending());
      ASSERT_GE(static_cast<std::int64_t>(chunk.sequence->blocks.size()) * limits.block_size,
                chunk.sequence->computed + chunk.count);
      for (const BlockId block : chunk.sequence->blocks)
        ASSERT_TRUE(written.insert(block).second) << "a block of two sequences";
      tokens += chunk.count;
    }
    ASSERT_LE(tokens, limits.max_batch_tokens);
    ASSERT_LE(static_cast<std::int64_t>(chunks.size()), limits.max_num_seqs);
    for (const ScheduledChunk& chunk : chunks) {
      Sequence& sequence = *chunk.sequence;
      sequence.computed += chunk.count;
      if (!chunk.samples) continue;
      sequence.tokens.push_back(2);
      sequence.complete = sequence.generated() == wanted[sequence.id];
      if (sequence.complete) ending.push_back(sequence.id);
    }
    if (ahead) std::swap(ending, leaving);
    for (const RequestId id : ending) {
      wanted.erase(id);
      scheduler.remove(id);
    }
    ending.clear();
  }
  EXPECT_TRUE(wanted.empty());
  EXPECT_EQ(scheduler.cache().pool().free_blocks(), num_blocks);
}

TEST(Scheduler, FinishesEveryRequestAndLosesNoPage) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    for (const bool ahead : {false, true}) {
      run_load(seed, 15, 30, ahead);  // a single request of 60 tokens fills the pool, so preemption is frequent
      run_load(seed, 200, 30, ahead);
    }
  }
}

// A load of sequences with common beginnings, on a model of the KV cache: what each slot holds, and from which weights.
class SharedLoad {
 public:
  SharedLoad(std::uint64_t seed, std::int64_t num_blocks, bool ahead)
      : random_(seed, "shared load"),
        scheduler_(kLimits, num_blocks),
        slots_(static_cast<std::size_t>(num_blocks * kLimits.block_size)),
        ahead_(ahead) {}

  // Adds a sequence that begins like others of its family and ends after some generated tokens.
  void add() {
    const auto family = static_cast<TokenId>(below(3));
    const std::int64_t common = below(30);
    const std::int64_t own = 1 + below(6);
    Load& load = loads_.emplace_back();
    for (std::int64_t i = 0; i < common; ++i) load.truth.push_back(100 * family + static_cast<TokenId>(i / 5));
    for (std::int64_t i = 0; i < own; ++i) load.truth.push_back(static_cast<TokenId>(below(2)));
    load.sequence.id = std::ssize(loads_) - 1;
    load.sequence.tokens = load.truth;
    load.sequence.prompt_length = std::ssize(load.truth);
    const std::int64_t generated = 1 + below(20);
    for (std::int64_t i = 0; i < generated; ++i) load.truth.push_back(static_cast<TokenId>(below(2)));
    scheduler_.add(load.sequence);
  }

  void run(std::int64_t count) {
    std::int64_t steps = 0;
    std::int64_t added = 0;
    while (added < count || scheduler_.has_work()) {
      ASSERT_LT(++steps, 10000) << "no progress";
      for (std::int64_t i = below(4); i > 0 && added < count; --i, ++added) add();
      if (below(40) == 0) change_weights();
      if (below(30) == 0) cancel_one();
      if (scheduler_.has_work()) step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    const PrefixCache& cache = scheduler_.cache();
    EXPECT_EQ(cache.pool().free_blocks(), cache.pool().num_blocks());
  }

  [[nodiscard]] const Scheduler& scheduler() const { return scheduler_; }

 private:
  static constexpr SchedulerLimits kLimits{.max_num_seqs = 5, .max_batch_tokens = 24, .block_size = 4};

  struct Load {
    Sequence sequence;
    std::vector<TokenId> truth;  // the prompt and all tokens that will be generated
    bool ended = false;
  };
  struct Slot {
    std::vector<TokenId> prefix;  // the tokens on which the slot's keys and values depend
    std::int64_t version = -1;    // of the weights
  };

  std::int64_t below(std::uint64_t bound) { return static_cast<std::int64_t>(random_.below(at_++, bound)); }

  void change_weights() {
    scheduler_.invalidate_prefixes();
    ++version_;
  }

  void end(RequestId id) {
    scheduler_.remove(id);
    loads_[static_cast<std::size_t>(id)].ended = true;
  }

  void cancel_one() {
    if (loads_.empty()) return;
    const RequestId id = below(loads_.size());
    if (!loads_[static_cast<std::size_t>(id)].ended) end(id);
  }

  Slot& slot(const Sequence& sequence, std::int64_t position) {
    const BlockId block = sequence.blocks.at(static_cast<std::size_t>(position / kLimits.block_size));
    return slots_.at(static_cast<std::size_t>(block * kLimits.block_size + position % kLimits.block_size));
  }

  std::vector<TokenId> prefix_of(const Sequence& sequence, std::int64_t position) const {
    const std::vector<TokenId>& truth = loads_[static_cast<std::size_t>(sequence.id)].truth;
    return {truth.begin(), truth.begin() + position + 1};
  }

  // Each reference of a block must be that of a sequence with this block.
  void check_references() const {
    std::map<BlockId, std::int64_t> owners;
    for (const Load& load : loads_) {
      if (load.ended) continue;
      std::set<BlockId> own(load.sequence.blocks.begin(), load.sequence.blocks.end());
      ASSERT_EQ(own.size(), load.sequence.blocks.size()) << "a block twice in a sequence";
      for (const BlockId block : own) ++owners[block];
    }
    const BlockPool& pool = scheduler_.cache().pool();
    std::int64_t in_use = 0;
    for (BlockId block = 0; block < pool.num_blocks(); ++block) {
      ASSERT_EQ(pool.references(block), owners[block]);
      in_use += owners[block] > 0 ? 1 : 0;
    }
    ASSERT_EQ(pool.free_blocks(), pool.num_blocks() - in_use);
  }

  // Checks that a chunk reads what its sequence needs and writes where no other sequence reads.
  void check(const ScheduledChunk& chunk) {
    const Sequence& sequence = *chunk.sequence;
    ASSERT_GT(chunk.count, 0);
    ASSERT_EQ(chunk.samples, chunk.count == sequence.pending());
    for (std::int64_t i = 0; i < sequence.computed; ++i) {
      ASSERT_EQ(slot(sequence, i).prefix, prefix_of(sequence, i)) << "position " << i;
      ASSERT_GE(slot(sequence, i).version, sequence.version) << "keys of old weights";
    }
    for (std::int64_t i = sequence.computed; i < sequence.computed + chunk.count; ++i) {
      ASSERT_GE(i, sequence.published * kLimits.block_size);
      const BlockId block = sequence.blocks.at(static_cast<std::size_t>(i / kLimits.block_size));
      ASSERT_EQ(scheduler_.cache().pool().references(block), 1) << "a shared block is written to";
    }
  }

  void step() {
    const std::vector<ScheduledChunk> chunks = scheduler_.schedule();
    check_references();
    for (const ScheduledChunk& chunk : chunks) check(chunk);
    if (::testing::Test::HasFatalFailure()) return;
    std::vector<std::pair<RequestId, std::int64_t>> sampled;  // sequence and position
    for (const ScheduledChunk& chunk : chunks) {
      Sequence& sequence = *chunk.sequence;
      for (std::int64_t i = sequence.computed; i < sequence.computed + chunk.count; ++i) {
        slot(sequence, i) = {prefix_of(sequence, i), version_};
      }
      sequence.computed += chunk.count;
      if (!chunk.samples) continue;
      sampled.emplace_back(sequence.id, sequence.length());
      sequence.tokens.push_back(-1 - static_cast<TokenId>(sampled.size() - 1));
      sequence.complete = sequence.length() == std::ssize(loads_[static_cast<std::size_t>(sequence.id)].truth);
    }
    std::swap(sampled, unread_);
    if (ahead_) {
      read(sampled);
    } else {
      read(unread_);
      unread_.clear();
    }
  }

  void read(const std::vector<std::pair<RequestId, std::int64_t>>& sampled) {
    for (const auto& [id, position] : sampled) {
      Load& load = loads_[static_cast<std::size_t>(id)];
      if (load.ended) continue;
      load.sequence.tokens[static_cast<std::size_t>(position)] = load.truth[static_cast<std::size_t>(position)];
      if (position + 1 == std::ssize(load.truth)) end(id);
    }
  }

  RandomStream random_;
  std::uint64_t at_ = 0;
  Scheduler scheduler_;
  std::deque<Load> loads_;
  std::vector<Slot> slots_;  // [num_blocks x block_size]
  std::vector<std::pair<RequestId, std::int64_t>> unread_;
  std::int64_t version_ = 0;
  bool ahead_;
};

TEST(Scheduler, SharedBlocksHoldWhatTheirSequencesNeed) {
  std::int64_t hit_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t evicted = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    for (const bool ahead : {false, true}) {
      for (const std::int64_t num_blocks : {15, 40, 300}) {
        SharedLoad load(seed, num_blocks, ahead);
        load.run(40);
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", " << num_blocks << " blocks, ahead " << ahead;
        hit_tokens += load.scheduler().prefix_hit_tokens();
        preemptions += load.scheduler().preemptions();
        evicted += load.scheduler().cache().evicted_blocks();
      }
    }
  }
  EXPECT_GT(hit_tokens, 0);
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(evicted, 0);
}

// Runs sequences of equal prompts of 42 tokens, 4 in a block, until each has sampled a token. Returns the tokens of
// each step.
std::vector<std::int64_t> tokens_of_steps(std::int64_t sequences, bool enable_prefix_caching) {
  Scheduler scheduler(
      {.max_num_seqs = 8, .max_batch_tokens = 1000, .block_size = 4, .enable_prefix_caching = enable_prefix_caching},
      200);
  std::deque<Sequence> group;
  for (RequestId id = 0; id < sequences; ++id) scheduler.add(group.emplace_back(sequence_of(id, 42)));
  std::vector<std::int64_t> steps;
  while (scheduler.has_work()) {
    steps.push_back(0);
    for (const ScheduledChunk& chunk : scheduler.schedule()) {
      steps.back() += chunk.count;
      chunk.sequence->computed += chunk.count;
      if (chunk.samples) scheduler.remove(chunk.sequence->id);
    }
  }
  return steps;
}

TEST(Scheduler, AGroupComputesTheFullBlocksOfItsPromptOnce) {
  EXPECT_EQ(tokens_of_steps(8, true), (std::vector<std::int64_t>{42, 7 * 2}));
  EXPECT_EQ(tokens_of_steps(8, false), (std::vector<std::int64_t>{8 * 42}));
}

TEST(Scheduler, DecodesComeFirst) {
  Scheduler scheduler({.max_num_seqs = 4, .max_batch_tokens = 8, .block_size = 4}, 100);
  Sequence first = sequence_of(0, 3);
  scheduler.add(first);
  auto chunks = scheduler.schedule();
  chunks[0].sequence->computed = 3;
  chunks[0].sequence->tokens.push_back(1);
  Sequence second = sequence_of(1, 20);
  second.tokens.assign(20, 2);  // shares nothing with the first one
  scheduler.add(second);
  chunks = scheduler.schedule();
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].sequence->id, 0);
  EXPECT_EQ(chunks[0].count, 1);
  EXPECT_EQ(chunks[1].count, 7);
  EXPECT_FALSE(chunks[1].samples);
}

}  // namespace
}  // namespace hone::test
