// Loaders: micro-batches in an order that depends on the seed alone, from any position.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "data/example_set.h"
#include "data/host_batch.h"
#include "data/packing.h"

namespace hone {

// The order of `count` things in each epoch: RandomStream(seed, "shuffle", epoch), or as they come.
class EpochOrder {
 public:
  EpochOrder(std::int64_t count, std::uint64_t seed, bool shuffle);
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::uint32_t at(std::int64_t epoch, std::int64_t index);

 private:
  std::int64_t count_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t epoch_ = -1;  // whose permutation is held
  std::vector<std::uint32_t> permutation_;
};

// The micro-batch that comes next: `index` counts micro-batches from the epoch's start.
struct LoaderPosition {
  std::int64_t epoch = 0;
  std::int64_t index = 0;

  bool operator==(const LoaderPosition&) const = default;
};

// The largest micro-batch that any epoch can yield.
struct BatchLimits {
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
};

// Yields micro-batches epoch after epoch, without end. A batch is a function of its position, so that resuming is
// exact.
class BatchLoader {
 public:
  virtual ~BatchLoader() = default;
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  [[nodiscard]] virtual std::int64_t batches_per_epoch() const = 0;  // at least 1
  [[nodiscard]] virtual BatchLimits limits() const = 0;
  [[nodiscard]] virtual HostBatch batch_at(LoaderPosition position) = 0;

  [[nodiscard]] HostBatch next();
  [[nodiscard]] LoaderPosition position() const { return position_; }
  void seek(LoaderPosition position);  // throws Error where the epoch has no such index

  // The position with what it depends on: {"epoch", "index", "seed", "batch", "data"}.
  [[nodiscard]] Json state() const;
  // Throws Error naming what differs where the state was taken from other data or options.
  void restore(const Json& state);

 protected:
  BatchLoader() = default;
  // What positions depend on, a name and a value each; the values of equal loaders are equal.
  struct Identity {
    std::uint64_t seed = 0;
    std::int64_t batch = 0;
    std::string data;
  };
  [[nodiscard]] virtual Identity identity() const = 0;

 private:
  LoaderPosition position_;
};

struct RowLoaderOptions {
  std::int64_t rows_per_batch = 1;  // per_device_train_batch_size
  std::uint64_t seed = 42;
  bool shuffle = true;
  bool drop_last = false;  // leave out an epoch's last batch where it is not full
};

// Micro-batches of packed rows, laid end to end. Throws Error where there is not one batch.
[[nodiscard]] std::unique_ptr<BatchLoader> make_row_loader(ExampleSet set, PackedRows rows,
                                                           const RowLoaderOptions& options);

struct WindowLoaderOptions {
  std::int64_t block_size = 1024;  // tokens a window
  std::int64_t windows_per_batch = 1;
  std::uint64_t seed = 42;
};

// `sampling: windows`: windows of block_size tokens of the stream, at positions drawn from (seed, step, index), every
// token with its successor as target. A window that crosses a document's start holds several documents. An epoch is as
// many batches as hold the stream's tokens. Throws Error where the stream is not longer than a window.
[[nodiscard]] std::unique_ptr<BatchLoader> make_window_loader(ExampleSet stream, const WindowLoaderOptions& options);

// Chunks of `chunk` things in EpochOrder, a part at the end of an epoch left out (TRL's RepeatSampler): GRPO's prompts.
// position: `index` counts chunks. Throws Error where the epoch has not one chunk.
class ChunkOrder {
 public:
  ChunkOrder(std::int64_t count, std::int64_t chunk, std::uint64_t seed, bool shuffle);
  [[nodiscard]] std::int64_t chunks_per_epoch() const { return order_.count() / chunk_; }
  [[nodiscard]] std::vector<std::uint32_t> at(LoaderPosition position);

 private:
  EpochOrder order_;
  std::int64_t chunk_;
};

}  // namespace hone
