#include "engine/scheduler.h"

#include <algorithm>

#include "core/error.h"

namespace hone {

Scheduler::Scheduler(const SchedulerLimits& limits, std::int64_t num_blocks) : limits_(limits), pool_(num_blocks) {
  HONE_ASSERT(limits.max_num_seqs > 0 && limits.max_batch_tokens > 0 && limits.block_size > 0);
}

void Scheduler::add(Sequence& sequence) { waiting_.push_back(&sequence); }

void Scheduler::remove(RequestId id) {
  const auto is_it = [id](const Sequence* sequence) { return sequence->id == id; };
  if (const auto found = std::find_if(running_.begin(), running_.end(), is_it); found != running_.end()) {
    pool_.release((*found)->blocks);
    running_.erase(found);
  } else if (const auto waits = std::find_if(waiting_.begin(), waiting_.end(), is_it); waits != waiting_.end()) {
    waiting_.erase(waits);
  }
}

std::int64_t Scheduler::missing_blocks(const Sequence& sequence, std::int64_t count) const {
  const std::int64_t wanted = (sequence.computed + count + limits_.block_size - 1) / limits_.block_size;
  return wanted - static_cast<std::int64_t>(sequence.blocks.size());
}

void Scheduler::take_blocks(Sequence& sequence, std::int64_t count) {
  for (std::int64_t missing = missing_blocks(sequence, count); missing > 0; --missing) {
    sequence.blocks.push_back(pool_.take());
  }
}

void Scheduler::preempt_last() {
  Sequence* sequence = running_.back();
  running_.pop_back();
  pool_.release(sequence->blocks);
  sequence->blocks.clear();
  sequence->computed = 0;
  waiting_.push_front(sequence);
  ++preemptions_;
}

bool Scheduler::make_room(std::size_t index, std::int64_t count) {
  while (missing_blocks(*running_[index], count) > pool_.free_blocks()) {
    const bool itself = running_.size() == index + 1;
    HONE_ASSERT(running_.size() > 1, "a sequence of ", running_[index]->length(), " tokens does not fit ",
                pool_.num_blocks(), " blocks");
    preempt_last();
    if (itself) return false;
  }
  return true;
}

std::vector<ScheduledChunk> Scheduler::schedule() {
  std::vector<ScheduledChunk> chunks;
  std::int64_t budget = limits_.max_batch_tokens;
  const auto plan = [&](std::size_t index) {
    Sequence& sequence = *running_[index];
    const std::int64_t count = std::min(sequence.pending(), budget);
    take_blocks(sequence, count);
    chunks.push_back({&sequence, count, count == sequence.pending()});
    budget -= count;
  };
  // Make room for a sequence before planning its chunk. A preemption must never take a sequence whose chunk is planned
  // already, so sequences are visited in order of arrival and only later ones are preempted. Decodes come first, then
  // prompts.
  for (const bool decoding : {true, false}) {
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      if (running_[i]->complete || (running_[i]->pending() == 1) != decoding) continue;
      const auto planned = [&](const Sequence* sequence) {
        return std::any_of(chunks.begin(), chunks.end(),
                           [&](const ScheduledChunk& c) { return c.sequence == sequence; });
      };
      const std::int64_t count = std::min(running_[i]->pending(), budget);
      // If the last sequence is a planned decode, it must not be preempted: the prompt waits for free blocks.
      if (missing_blocks(*running_[i], count) > pool_.free_blocks() && planned(running_.back())) continue;
      if (!make_room(i, count)) break;
      plan(i);
    }
  }
  // Admit waiting sequences with what is left of the budget and the blocks. Admission never preempts.
  while (!waiting_.empty() && budget > 0 && running() < limits_.max_num_seqs) {
    Sequence& next = *waiting_.front();
    if (next.complete) break;  // preempted after its last step; it leaves when its token has been read
    if (missing_blocks(next, std::min(next.pending(), budget)) > pool_.free_blocks()) break;
    running_.push_back(&next);
    waiting_.pop_front();
    plan(running_.size() - 1);
  }
  const auto complete = [](const Sequence* sequence) { return sequence->complete; };
  HONE_ASSERT(!chunks.empty() || std::ranges::any_of(waiting_, complete) || std::ranges::all_of(running_, complete),
              "nothing can be scheduled");
  return chunks;
}

}  // namespace hone
