// Continuous batching: what each step of the engine computes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/block_pool.h"
#include "engine/occurred_ids.h"
#include "engine/request.h"

namespace hone {

struct SchedulerLimits {
  std::int64_t max_num_seqs = 64;       // requests in one step
  std::int64_t max_batch_tokens = 512;  // tokens in one step
  std::int64_t block_size = 16;         // tokens a page
};

// A request in the engine.
struct Sequence {
  RequestId id = 0;
  SamplingParams sampling;
  std::vector<TokenId> tokens;  // prompt, then what was generated
  std::int64_t prompt_length = 0;
  std::int64_t computed = 0;            // tokens whose keys and values are in the pages
  std::vector<BlockId> blocks;          // pages in order
  std::optional<OccurredIds> occurred;  // of `tokens`; where there is a repetition penalty

  [[nodiscard]] std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
  [[nodiscard]] std::int64_t pending() const { return length() - computed; }
  [[nodiscard]] std::int64_t generated() const { return length() - prompt_length; }
};

// Tokens [sequence->computed, + count) of a sequence go through the model in this step.
struct ScheduledChunk {
  Sequence* sequence = nullptr;
  std::int64_t count = 0;
  bool samples = false;  // the chunk ends at the sequence's last token, so that the next one is drawn
};

// Fills one token budget a step: first sequences that wait for one token only, then chunks of prompts, in order of
// arrival. Where pages run out, the youngest sequence gives its pages back and is computed again later.
class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, std::int64_t num_blocks);

  // The sequence must fit the pool alone: pages for all the tokens that it may come to hold.
  void add(std::unique_ptr<Sequence> sequence);
  // Ends a sequence, waiting or running, and gives its pages back.
  void remove(RequestId id);
  [[nodiscard]] bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  // At least one chunk where there is work. The pages that the chunks write to are in their sequences' `blocks`.
  [[nodiscard]] std::vector<ScheduledChunk> schedule();

  [[nodiscard]] const BlockPool& pool() const { return pool_; }
  [[nodiscard]] std::int64_t running() const { return static_cast<std::int64_t>(running_.size()); }
  [[nodiscard]] std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  [[nodiscard]] std::int64_t preemptions() const { return preemptions_; }
  [[nodiscard]] const SchedulerLimits& limits() const { return limits_; }

 private:
  [[nodiscard]] std::int64_t missing_blocks(const Sequence& sequence, std::int64_t count) const;
  void take_blocks(Sequence& sequence, std::int64_t count);
  // Makes room for `count` more tokens of running_[index]; sequences behind it may be preempted. False where it had to
  // be preempted itself.
  bool make_room(std::size_t index, std::int64_t count);
  void preempt_last();

  SchedulerLimits limits_;
  BlockPool pool_;
  std::vector<std::unique_ptr<Sequence>> running_;  // by arrival
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::int64_t preemptions_ = 0;
};

}  // namespace hone
