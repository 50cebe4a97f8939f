#include "engine/scheduler.h"

#include <algorithm>

#include "core/error.h"

namespace hone {

Scheduler::Scheduler(const SchedulerLimits& limits, std::int64_t num_blocks)
    : limits_(limits), cache_(num_blocks, limits.block_size) {
  HONE_ASSERT(limits.max_num_seqs > 0 && limits.max_batch_tokens > 0 && limits.block_size > 0);
}

void Scheduler::add(Sequence& sequence) { waiting_.push_back(&sequence); }

void Scheduler::remove(RequestId id) {
  const auto is_it = [id](const Sequence* sequence) { return sequence->id == id; };
  if (const auto found = std::find_if(running_.begin(), running_.end(), is_it); found != running_.end()) {
    publish(**found);
    cache_.release((*found)->blocks);
    running_.erase(found);
  } else if (const auto waits = std::find_if(waiting_.begin(), waiting_.end(), is_it); waits != waiting_.end()) {
    waiting_.erase(waits);
  }
}

std::int64_t Scheduler::missing_blocks(std::int64_t blocks, std::int64_t length) const {
  return (length + limits_.block_size - 1) / limits_.block_size - blocks;
}

std::int64_t Scheduler::missing_blocks(const Sequence& sequence, std::int64_t count) const {
  return missing_blocks(std::ssize(sequence.blocks), sequence.computed + count);
}

std::int64_t Scheduler::chunk_length(const Sequence& sequence, std::int64_t computed, const Step& step) const {
  const std::int64_t count = std::min(sequence.length() - computed, step.budget);
  const std::int64_t sampled = sequence.prompt_length - 1 - computed;
  if (!sequence.sampling.prompt_logprobs || sampled <= step.prompt_samples) return count;
  return std::min(count, step.prompt_samples);
}

void Scheduler::shorten_draft(Sequence& sequence, std::int64_t count, const Step& step) const {
  std::vector<TokenId>& draft = sequence.draft;
  const auto room = static_cast<std::size_t>(step.budget - count);
  if (draft.size() > room) draft.resize(room);
  while (!draft.empty() && missing_blocks(sequence, count + std::ssize(draft)) > cache_.pool().free_blocks()) {
    draft.pop_back();
  }
}

void Scheduler::plan(Sequence& sequence, std::int64_t count, Step& step) {
  for (std::int64_t missing = missing_blocks(sequence, count); missing > 0; --missing) {
    sequence.blocks.push_back(cache_.take());
  }
  ScheduledChunk chunk{.sequence = &sequence, .count = count};
  const std::int64_t end = sequence.computed + count;
  if (end >= sequence.length()) chunk.samples = end - sequence.length() + 1;
  if (sequence.sampling.prompt_logprobs) {
    chunk.prompt_samples = std::max<std::int64_t>(0, std::min(end, sequence.prompt_length - 1) - sequence.computed);
  }
  step.budget -= count;
  step.prompt_samples -= chunk.prompt_samples;
  step.chunks.push_back(chunk);
}

void Scheduler::preempt_last() {
  Sequence* sequence = running_.back();
  running_.pop_back();
  cache_.release(sequence->blocks);
  sequence->blocks.clear();
  sequence->draft.clear();
  sequence->computed = 0;
  sequence->published = 0;
  waiting_.push_front(sequence);
  ++preemptions_;
}

bool Scheduler::make_room(std::size_t index, std::int64_t count) {
  while (missing_blocks(*running_[index], count) > cache_.pool().free_blocks()) {
    const bool itself = running_.size() == index + 1;
    HONE_ASSERT(running_.size() > 1, "a sequence of ", running_[index]->length(), " tokens does not fit ",
                cache_.pool().num_blocks(), " blocks");
    preempt_last();
    if (itself) return false;
  }
  return true;
}

void Scheduler::plan_running(Step& step) {
  // Make room for a sequence before planning its chunk. A preemption must never take a sequence whose chunk is planned
  // already, so sequences are visited in order of arrival and only later ones are preempted. Decodes come first, then
  // prompts.
  for (const bool decoding : {true, false}) {
    for (std::size_t i = 0; i < running_.size() && step.budget > 0; ++i) {
      if (running_[i]->complete) continue;
      if ((running_[i]->pending() == 1) != decoding) continue;
      const auto planned = [&](const Sequence* sequence) {
        return std::any_of(step.chunks.begin(), step.chunks.end(),
                           [&](const ScheduledChunk& c) { return c.sequence == sequence; });
      };
      const std::int64_t count = chunk_length(*running_[i], running_[i]->computed, step);
      if (count == 0) continue;
      // If the last sequence is a planned decode, it must not be preempted: the prompt waits for free blocks.
      if (missing_blocks(*running_[i], count) > cache_.pool().free_blocks() && planned(running_.back())) continue;
      if (!make_room(i, count)) break;
      shorten_draft(*running_[i], count, step);
      plan(*running_[i], count + std::ssize(running_[i]->draft), step);
    }
  }
}

void Scheduler::admit_waiting(Step& step) {
  // Looking at as many sequences as may run bounds the time that is spent on those that wait for a running one.
  std::int64_t left_waiting = 0;
  for (auto at = waiting_.begin(); at != waiting_.end() && step.budget > 0 && running() < limits_.max_num_seqs &&
                                   left_waiting < limits_.max_num_seqs;) {
    Sequence& next = **at;
    if (next.complete) break;  // preempted after its last step; it leaves when its token has been read
    const std::vector<BlockId> prefix = published_prefix(next);
    if (is_being_computed(next, prefix)) {
      ++left_waiting;
      ++at;
      continue;
    }
    // Admission never preempts. The blocks of the prefix that no sequence holds are among the free ones.
    const std::int64_t computed = std::ssize(prefix) * limits_.block_size;
    const std::int64_t count = chunk_length(next, computed, step);
    if (count == 0) break;
    const auto unused = std::ranges::count_if(prefix, [&](BlockId id) { return cache_.pool().references(id) == 0; });
    if (missing_blocks(std::ssize(prefix), computed + count) > cache_.pool().free_blocks() - unused) break;
    cache_.hold(prefix);
    next.blocks = prefix;
    next.computed = computed;
    next.published = std::ssize(prefix);
    next.version = cache_.version();
    hit_tokens_ += computed;
    running_.push_back(&next);
    at = waiting_.erase(at);
    plan(next, count, step);
  }
}

std::vector<ScheduledChunk> Scheduler::schedule() {
  for (Sequence* sequence : running_) publish(*sequence);
  Step step{.chunks = {}, .budget = limits_.max_batch_tokens, .prompt_samples = limits_.max_prompt_samples};
  plan_running(step);
  admit_waiting(step);
  HONE_ASSERT(!step.chunks.empty() || std::ranges::any_of(waiting_, &Sequence::complete) ||
                  std::ranges::all_of(running_, &Sequence::complete),
              "nothing can be scheduled");
  return std::move(step.chunks);
}

void Scheduler::publish(Sequence& sequence) {
  if (!limits_.enable_prefix_caching || sequence.version != cache_.version()) return;
  while ((sequence.published + 1) * limits_.block_size <= sequence.computed) {
    const auto index = static_cast<std::size_t>(sequence.published);
    const auto size = static_cast<std::size_t>(limits_.block_size);
    const std::span<const TokenId> tokens = std::span(sequence.tokens).subspan(index * size, size);
    // Only the last token of a sequence may be one that the host has not read, and it has not been computed.
    HONE_ASSERT(tokens.back() >= 0, "a token of a full block is unknown");
    const BlockId parent = index == 0 ? kNoBlock : sequence.blocks[index - 1];
    sequence.blocks[index] = cache_.publish(parent, sequence.blocks[index], tokens, sequence.adapter.id);
    ++sequence.published;
  }
}

std::vector<BlockId> Scheduler::published_prefix(const Sequence& sequence) const {
  if (!uses_prefixes(sequence)) return {};
  return cache_.find(std::span(sequence.tokens).first(sequence.tokens.size() - 1), sequence.adapter.id);
}

bool Scheduler::is_being_computed(const Sequence& sequence, std::span<const BlockId> prefix) const {
  const auto begin = std::ssize(prefix) * limits_.block_size;
  if (!uses_prefixes(sequence) || begin + limits_.block_size >= sequence.length()) return false;
  const auto next_block = [&](const Sequence& of) {
    return std::span(of.tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(limits_.block_size));
  };
  return std::ranges::any_of(running_, [&](const Sequence* other) {
    if (other->adapter.id != sequence.adapter.id || other->version != cache_.version() ||
        other->published != std::ssize(prefix))
      return false;
    if (other->length() < begin + limits_.block_size) return false;
    if (!prefix.empty() && other->blocks[prefix.size() - 1] != prefix.back()) return false;
    return std::ranges::equal(next_block(*other), next_block(sequence));
  });
}

}  // namespace hone
