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
  const SchedulerLimits limits{.max_num_seqs = 5, .max_batch_tokens = 24, .block_size = 4};
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
  EXPECT_EQ(scheduler.pool().free_blocks(), num_blocks);
}

TEST(Scheduler, FinishesEveryRequestAndLosesNoPage) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    for (const bool ahead : {false, true}) {
      run_load(seed, 15, 30, ahead);  // a single request of 60 tokens fills the pool, so preemption is frequent
      run_load(seed, 200, 30, ahead);
    }
  }
}

TEST(Scheduler, DecodesComeFirst) {
  Scheduler scheduler({.max_num_seqs = 4, .max_batch_tokens = 8, .block_size = 4}, 100);
  Sequence first = sequence_of(0, 3);
  scheduler.add(first);
  auto chunks = scheduler.schedule();
  chunks[0].sequence->computed = 3;
  chunks[0].sequence->tokens.push_back(1);
  Sequence second = sequence_of(1, 20);
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
