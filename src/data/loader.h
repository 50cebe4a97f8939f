// Loaders that yield batches of sequences in an order that depends only on the seed, and that can resume at any
// position.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "data/example_set.h"
#include "data/host_batch.h"
#include "data/micro_batches.h"
#include "data/packing.h"

namespace hone {

// Order of `count` items in each epoch: a permutation by RandomStream(seed, "shuffle", epoch), or the original order.
class EpochOrder {
 public:
  EpochOrder(std::int64_t count, std::uint64_t seed, bool shuffle);
  [[nodiscard]] std::int64_t count() const { return count_; }
  // Returns the item at place `index` of an epoch.
  [[nodiscard]] std::uint32_t at(std::int64_t epoch, std::int64_t index);

 private:
  std::int64_t count_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t epoch_ = -1;                 // epoch of permutation_
  std::vector<std::uint32_t> permutation_;  // [count]
};

// Position of the next batch; `index` counts batches from the start of the epoch.
struct LoaderPosition {
  std::int64_t epoch = 0;
  std::int64_t index = 0;

  bool operator==(const LoaderPosition&) const = default;
};

// Yields batches of sequences epoch after epoch, without end. A batch is a function of its position, so resuming is
// exact. How the sequences of several batches are laid into micro-batches is decided by data/micro_batches.h.
class BatchLoader {
 public:
  virtual ~BatchLoader() = default;
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  [[nodiscard]] virtual std::int64_t batches_per_epoch() const = 0;  // at least 1
  // Returns the size of the largest batch that any epoch can yield, and the largest size of one sequence.
  [[nodiscard]] virtual BatchLimits limits() const = 0;
  [[nodiscard]] virtual BatchLimits longest() const = 0;
  // Returns the sequences at a position, without moving the loader, and their sizes, of which `documents` may be more
  // than there are.
  [[nodiscard]] virtual std::vector<HostBatch> sequences_at(LoaderPosition position) = 0;
  [[nodiscard]] virtual std::vector<BatchLimits> sizes_at(LoaderPosition position) = 0;
  // Returns the sequences at a position, laid end to end.
  [[nodiscard]] HostBatch batch_at(LoaderPosition position);

  // Returns the next batch and advances the position.
  [[nodiscard]] std::vector<HostBatch> next_sequences();
  [[nodiscard]] HostBatch next();
  // Moves `count` batches forward, at most to the start of the next epoch.
  void skip(std::int64_t count);
  [[nodiscard]] LoaderPosition position() const { return position_; }
  void seek(LoaderPosition position);  // throws Error if an epoch has no such index

  // Returns the position and what it depends on: {"epoch", "index", "seed", "batch", "data"}.
  [[nodiscard]] Json state() const;
  // Moves to a saved position. Throws Error that names the difference if the state belongs to other data or options.
  void restore(const Json& state);

 protected:
  BatchLoader() = default;
  // Everything that the meaning of a position depends on. Loaders with equal identities yield equal batches.
  struct Identity {
    std::uint64_t seed = 0;
    std::int64_t batch = 0;  // rows or windows per batch
    std::string data;        // fingerprint of the data
  };
  [[nodiscard]] virtual Identity identity() const = 0;

 private:
  LoaderPosition position_;
};

struct RowLoaderOptions {
  std::int64_t rows_per_batch = 1;  // per_device_train_batch_size
  std::uint64_t seed = 42;
  bool shuffle = true;
  bool drop_last = false;  // skip the last batch of an epoch if it is not full
};

// Yields batches of packed rows. A row is a sequence. Throws Error if an epoch has no full batch or no rows.
[[nodiscard]] std::unique_ptr<BatchLoader> make_row_loader(ExampleSet set, PackedRows rows,
                                                           const RowLoaderOptions& options);

struct WindowLoaderOptions {
  std::int64_t block_size = 1024;  // tokens per window
  std::int64_t windows_per_batch = 1;
  std::uint64_t seed = 42;
};

// Yields batches for `sampling: windows`: windows of block_size tokens of the stream, at positions drawn from
// (seed, step, index). Every token has its successor as its target. A window that crosses the start of a document holds
// several documents. An epoch has as many batches as are needed to hold the stream's number of tokens. Throws Error if
// the stream is not longer than one window.
[[nodiscard]] std::unique_ptr<BatchLoader> make_window_loader(ExampleSet stream, const WindowLoaderOptions& options);

// Returns the sizes of the first steps of `batches_per_step` batches each, for the choice of capacities. The last step
// of an epoch may have fewer batches.
[[nodiscard]] StepSizes step_sizes(BatchLoader& loader, std::int64_t batches_per_step);
// Lays the sequences of a step into micro-batches.
[[nodiscard]] std::vector<HostBatch> lay_micro_batches(std::span<const HostBatch> sequences, BatchLimits limits);

// Chunks of `chunk` items in EpochOrder, for GRPO's prompts. An incomplete chunk at the end of an epoch is skipped, as
// in TRL's RepeatSampler. `index` of a position counts chunks. Throws Error if an epoch has no full chunk.
class ChunkOrder {
 public:
  ChunkOrder(std::int64_t count, std::int64_t chunk, std::uint64_t seed, bool shuffle);
  [[nodiscard]] std::int64_t chunks_per_epoch() const { return order_.count() / chunk_; }
  // Returns the items of the chunk at a position; [chunk].
  [[nodiscard]] std::vector<std::uint32_t> at(LoaderPosition position);

 private:
  EpochOrder order_;
  std::int64_t chunk_;
};

}  // namespace hone
