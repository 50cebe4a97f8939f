// Continuous batching: chooses the sequences and tokens that each step of the engine computes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "engine/logit_entries.h"
#include "engine/prefix_cache.h"
#include "engine/request.h"

namespace hone {

struct SchedulerLimits {
  std::int64_t max_num_seqs = 64;       // requests in one step
  std::int64_t max_batch_tokens = 512;  // tokens in one step
  std::int64_t block_size = 32;         // tokens per KV-cache block
  bool enable_prefix_caching = true;    // sequences share the blocks of equal beginnings
  std::int64_t max_prompt_samples = 0;  // tokens of prompts in one step that are sampled with a given result
};

// The state of a request in the engine.
struct Sequence {
  RequestId id = 0;
  SamplingParams sampling;
  RequestAdapter adapter;
  // The prompt, then the generated tokens. A token that was sampled in the step before, and that the host has not read
  // yet, is token_of_sample() of its sample (ops/token_feedback/token_feedback.h).
  std::vector<TokenId> tokens;
  std::int64_t prompt_length = 0;
  // Tokens that may follow `tokens`. The next chunk computes them too and draws what follows each of them.
  std::vector<TokenId> draft;
  std::int64_t computed = 0;            // tokens whose keys and values are in the KV cache; none of the draft
  std::vector<BlockId> blocks;          // KV-cache blocks in the order of the tokens
  std::int64_t published = 0;           // blocks at the beginning of `blocks` that the prefix cache has
  std::int64_t version = 0;             // version of the prefix cache in which it was admitted
  std::optional<LogitEntries> entries;  // set only if sampling.adjusts_logits()
  std::span<const std::int32_t> mask;   // of the next token, if a grammar restricts it (ops/adjust_logits)
  std::chrono::steady_clock::time_point started{};  // when its first step was launched
  bool complete = false;  // its last token is being sampled, so nothing more is to be computed

  [[nodiscard]] std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
  // Returns true if its next mask cannot be known yet: it depends on a token that the host has not read.
  [[nodiscard]] bool waits_for_mask() const { return !mask.empty() && tokens.back() < 0; }
  [[nodiscard]] std::int64_t pending() const { return length() - computed; }
  [[nodiscard]] std::int64_t generated() const { return length() - prompt_length; }
  // The token at an index of the sequence and its draft.
  [[nodiscard]] TokenId token_at(std::int64_t index) const {
    return index < length() ? tokens[static_cast<std::size_t>(index)]
                            : draft[static_cast<std::size_t>(index - length())];
  }
};

// A part of a step: tokens [computed, computed + count) of a sequence and its draft.
struct ScheduledChunk {
  Sequence* sequence = nullptr;
  std::int64_t count = 0;
  std::int64_t prompt_samples = 0;  // first rows that are sampled with the next token of the prompt as a given result
  std::int64_t samples = 0;         // last rows that draw a token: the sequence's last one and those of the draft
};

// Fills a token budget in each step: first decodes (sequences with one pending token), then chunks of prompts, each in
// order of arrival. If KV-cache blocks run out, the sequence that arrived last is preempted: it returns its blocks and
// is recomputed later.
//
// With the prefix cache, a sequence begins with the published blocks of its prefix and computes the rest, at least its
// last token. A sequence whose next block a running one is about to compute waits for that block, so that the
// completions of a group compute their prompt's full blocks once. The last part of a prompt, which fills no block, is
// computed by each of them. Blocks are shared only once the step that computes them has been launched, and a sequence
// writes only to blocks after those that it shares.
//
// A draft is computed with the one pending token of its sequence. It never makes room for itself by preemption.
class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, std::int64_t num_blocks);

  // Adds a sequence, which must not move until it is removed. The pool must have enough blocks for all tokens that this
  // sequence alone can reach.
  void add(Sequence& sequence);
  // Removes a waiting or running sequence and returns its blocks. Does nothing if the id is unknown.
  void remove(RequestId id);
  [[nodiscard]] bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  // Plans the next step and allocates the blocks that its chunks write to. Returns at least one chunk if a sequence is
  // not complete.
  [[nodiscard]] std::vector<ScheduledChunk> schedule();

  // Preempts all running sequences: each is computed again from its first token. No token may be unread.
  void restart() {
    while (!running_.empty()) preempt_last();
  }
  // Makes the prefix cache forget all blocks, because the weights or the memory of the KV cache have changed.
  void invalidate_prefixes() { cache_.invalidate(); }

  [[nodiscard]] const PrefixCache& cache() const { return cache_; }
  [[nodiscard]] std::int64_t running() const { return static_cast<std::int64_t>(running_.size()); }
  [[nodiscard]] std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  [[nodiscard]] std::int64_t preemptions() const { return preemptions_; }
  // Tokens that were not computed because the prefix cache had them, at admission and after preemptions.
  [[nodiscard]] std::int64_t prefix_hit_tokens() const { return hit_tokens_; }
  [[nodiscard]] const SchedulerLimits& limits() const { return limits_; }

 private:
  // The step that is being planned.
  struct Step {
    std::vector<ScheduledChunk> chunks;
    std::int64_t budget = 0;          // tokens that it has room for
    std::int64_t prompt_samples = 0;  // of these, tokens of prompts that are sampled
  };

  // Blocks that a sequence with the first `blocks` blocks needs for tokens [0, length).
  [[nodiscard]] std::int64_t missing_blocks(std::int64_t blocks, std::int64_t length) const;
  [[nodiscard]] std::int64_t missing_blocks(const Sequence& sequence, std::int64_t count) const;
  // Returns how many tokens from `computed` of a sequence the step has room for, without the draft.
  [[nodiscard]] std::int64_t chunk_length(const Sequence& sequence, std::int64_t computed, const Step& step) const;
  // Shortens the draft of a sequence to what the step and the free blocks have room for after `count` tokens.
  void shorten_draft(Sequence& sequence, std::int64_t count, const Step& step) const;
  // Plans a chunk of a running sequence and takes its blocks.
  void plan(Sequence& sequence, std::int64_t count, Step& step);
  void plan_running(Step& step);
  void admit_waiting(Step& step);
  // Frees blocks for `count` more tokens of running_[index] by preempting later sequences. Returns false if that
  // sequence itself had to be preempted.
  bool make_room(std::size_t index, std::int64_t count);
  void preempt_last();

  // Publishes the full blocks of a running sequence whose tokens are known.
  void publish(Sequence& sequence);
  // Returns false if a sequence computes all of its tokens itself: the log-probabilities of its prompt need them.
  [[nodiscard]] bool uses_prefixes(const Sequence& sequence) const {
    return limits_.enable_prefix_caching && !sequence.sampling.prompt_logprobs;
  }
  // Returns the published blocks with which a waiting sequence may begin.
  [[nodiscard]] std::vector<BlockId> published_prefix(const Sequence& sequence) const;
  // Returns true if a running sequence is about to compute the block that follows `prefix` in `sequence`.
  [[nodiscard]] bool is_being_computed(const Sequence& sequence, std::span<const BlockId> prefix) const;

  SchedulerLimits limits_;
  PrefixCache cache_;
  std::vector<Sequence*> running_;  // in order of arrival
  std::deque<Sequence*> waiting_;
  std::int64_t preemptions_ = 0;
  std::int64_t hit_tokens_ = 0;
};

}  // namespace hone
