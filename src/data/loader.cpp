#include "data/loader.h"

#include <algorithm>
#include <cstddef>
#include <iomanip>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/random.h"

namespace hone {
namespace {

// FNV-1a over 64-bit words. It distinguishes datasets; it is not a cryptographic hash.
class TokenHash {
 public:
  void add(std::uint64_t word) { hash_ = (hash_ ^ word) * 0x100000001B3u; }
  void add(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) add(static_cast<std::uint64_t>(token));
  }
  [[nodiscard]] std::string text() const {
    std::ostringstream out;
    out << std::hex << std::setw(16) << std::setfill('0') << hash_;
    return out.str();
  }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325u;
};

std::string fingerprint_of(const ExampleSet& set, const PackedRows* rows) {
  TokenHash hash;
  hash.add(set.tokens());
  for (const std::int64_t offset : set.offsets()) hash.add(static_cast<std::uint64_t>(offset));
  for (const std::uint8_t target : set.is_target()) hash.add(target);
  for (std::int64_t row = 0; rows != nullptr && row < rows->size(); ++row) {
    hash.add(static_cast<std::uint64_t>((*rows)[row].size()));
    for (const Segment& segment : (*rows)[row]) {
      hash.add((std::uint64_t{segment.example} << 32) | static_cast<std::uint32_t>(segment.begin));
      hash.add(static_cast<std::uint64_t>(segment.length));
    }
  }
  return hash.text();
}

// Sum of the `count` largest values.
std::int64_t sum_of_largest(std::vector<std::int64_t> values, std::int64_t count) {
  const auto most = static_cast<std::ptrdiff_t>(std::min(count, static_cast<std::int64_t>(values.size())));
  std::partial_sort(values.begin(), values.begin() + most, values.end(), std::greater<>());
  std::int64_t sum = 0;
  for (std::ptrdiff_t i = 0; i < most; ++i) sum += values[static_cast<std::size_t>(i)];
  return sum;
}

void require_batch_size(std::int64_t size) {
  if (size < 1) throw Error("per_device_train_batch_size", text_of("is ", size), "it must be at least 1");
}

class RowLoader final : public BatchLoader {
 public:
  RowLoader(ExampleSet set, PackedRows rows, const RowLoaderOptions& options)
      : set_(std::move(set)),
        rows_(std::move(rows)),
        options_(options),
        order_(rows_.size(), options.seed, options.shuffle),
        data_(fingerprint_of(set_, &rows_)) {
    require_batch_size(options.rows_per_batch);
    if (rows_.size() == 0) throw Error("the dataset has no sequences to train on");
    if (batches_per_epoch() == 0) {
      throw Error("per_device_train_batch_size",
                  text_of("is ", options.rows_per_batch, ", but the dataset has only ", rows_.size(), " sequences"),
                  "lower it, or keep the last batch (dataloader_drop_last: false)");
    }
  }

  [[nodiscard]] std::int64_t batches_per_epoch() const override {
    const std::int64_t size = options_.rows_per_batch;
    return options_.drop_last ? rows_.size() / size : (rows_.size() - 1) / size + 1;
  }

  [[nodiscard]] BatchLimits limits() const override {
    std::vector<std::int64_t> tokens;
    std::vector<std::int64_t> documents;
    for (std::int64_t row = 0; row < rows_.size(); ++row) {
      tokens.push_back(rows_.token_count(row));
      documents.push_back(static_cast<std::int64_t>(rows_[row].size()));
    }
    return {.tokens = sum_of_largest(std::move(tokens), options_.rows_per_batch),
            .documents = sum_of_largest(std::move(documents), options_.rows_per_batch)};
  }

  [[nodiscard]] BatchLimits longest() const override {
    BatchLimits most;
    for (std::int64_t row = 0; row < rows_.size(); ++row) {
      most.tokens = std::max(most.tokens, rows_.token_count(row));
      most.documents = std::max(most.documents, static_cast<std::int64_t>(rows_[row].size()));
    }
    return most;
  }

  [[nodiscard]] std::vector<HostBatch> sequences_at(LoaderPosition position) override {
    std::vector<HostBatch> sequences;
    for (const std::uint32_t row : rows_at(position)) {
      HostBatch& sequence = sequences.emplace_back();
      for (const Segment& segment : rows_[row]) {
        append_document(sequence, set_[segment.example], segment.begin, segment.length, LookAhead::kNo);
      }
    }
    return sequences;
  }

  [[nodiscard]] std::vector<BatchLimits> sizes_at(LoaderPosition position) override {
    std::vector<BatchLimits> sizes;
    for (const std::uint32_t row : rows_at(position)) {
      sizes.push_back({rows_.token_count(row), static_cast<std::int64_t>(rows_[row].size())});
    }
    return sizes;
  }

 protected:
  [[nodiscard]] Identity identity() const override { return {options_.seed, options_.rows_per_batch, data_}; }

 private:
  [[nodiscard]] std::vector<std::uint32_t> rows_at(LoaderPosition position) {
    const std::int64_t begin = position.index * options_.rows_per_batch;
    const std::int64_t end = std::min(begin + options_.rows_per_batch, rows_.size());
    std::vector<std::uint32_t> rows;
    for (std::int64_t i = begin; i < end; ++i) rows.push_back(order_.at(position.epoch, i));
    return rows;
  }

  ExampleSet set_;
  PackedRows rows_;
  RowLoaderOptions options_;
  EpochOrder order_;
  std::string data_;
};

class WindowLoader final : public BatchLoader {
 public:
  WindowLoader(ExampleSet stream, const WindowLoaderOptions& options)
      : stream_(std::move(stream)), options_(options), data_(fingerprint_of(stream_, nullptr)) {
    require_batch_size(options.windows_per_batch);
    if (options.block_size < 1 || options.block_size >= stream_.token_count()) {
      throw Error("block_size",
                  text_of("is ", options.block_size, ", but the text has ", stream_.token_count(), " tokens"),
                  "use at least 1 and less than the number of tokens");
    }
    longest_ = largest_window();
  }

  [[nodiscard]] std::int64_t batches_per_epoch() const override {
    return (stream_.token_count() - 1) / (options_.block_size * options_.windows_per_batch) + 1;
  }

  [[nodiscard]] BatchLimits limits() const override {
    return {.tokens = longest_.tokens * options_.windows_per_batch,
            .documents = longest_.documents * options_.windows_per_batch};
  }

  [[nodiscard]] BatchLimits longest() const override { return longest_; }

  [[nodiscard]] std::vector<HostBatch> sequences_at(LoaderPosition position) override {
    const auto step = static_cast<std::uint64_t>(position.epoch * batches_per_epoch() + position.index);
    const RandomStream random(options_.seed, "windows", step);
    const auto starts = static_cast<std::uint64_t>(stream_.token_count() - options_.block_size);
    std::vector<HostBatch> windows(static_cast<std::size_t>(options_.windows_per_batch));
    for (std::size_t i = 0; i < windows.size(); ++i) {
      append_window(windows[i], static_cast<std::int64_t>(random.below(i, starts)));
    }
    return windows;
  }

  [[nodiscard]] std::vector<BatchLimits> sizes_at(LoaderPosition) override {
    return std::vector(static_cast<std::size_t>(options_.windows_per_batch), longest_);
  }

 protected:
  [[nodiscard]] Identity identity() const override {
    return {options_.seed, options_.windows_per_batch, text_of(data_, "/", options_.block_size)};
  }

 private:
  // Returns the largest size of a window.
  [[nodiscard]] BatchLimits largest_window() const {
    const auto offsets = stream_.offsets();
    std::size_t most = 1;
    for (std::size_t first = 0, last = 0; first + 1 < offsets.size(); ++first) {
      // A window over the most documents starts at the last token of its first one.
      while (last + 1 < offsets.size() && offsets[last] < offsets[first + 1] - 1 + options_.block_size) ++last;
      most = std::max(most, last - first);
    }
    return {.tokens = options_.block_size, .documents = static_cast<std::int64_t>(most)};
  }

  void append_window(HostBatch& batch, std::int64_t start) const {
    const auto offsets = stream_.offsets();
    auto document = std::upper_bound(offsets.begin(), offsets.end(), start) - offsets.begin() - 1;
    const std::int64_t end = start + options_.block_size;
    while (start < end) {
      const std::int64_t document_start = offsets[static_cast<std::size_t>(document)];
      const std::int64_t stop = std::min(end, document_start + stream_.length(document));
      if (stop > start)
        append_document(batch, stream_[document], start - document_start, stop - start, LookAhead::kYes);
      start = stop;
      ++document;
    }
  }

  ExampleSet stream_;
  WindowLoaderOptions options_;
  std::string data_;
  BatchLimits longest_;  // of a window
};

template <class T>
T field(const Json& state, const char* name) {
  const auto found = state.is_object() ? state.find(name) : state.end();
  const bool usable = state.is_object() && found != state.end() &&
                      (std::is_same_v<T, std::string> ? found->is_string() : found->is_number_integer());
  if (!usable) throw Error("data position", text_of("has no usable '", name, "'"), "the checkpoint is damaged");
  return found->get<T>();
}

template <class T>
void require_same(const char* name, const T& saved, const T& now, const char* fix) {
  if (saved != now) throw Error(name, text_of("was ", saved, " in the checkpoint and is ", now, " now"), fix);
}

HostBatch joined(std::span<const HostBatch> sequences) {
  HostBatch batch;
  for (const HostBatch& sequence : sequences) append_batch(batch, sequence);
  return batch;
}

}  // namespace

EpochOrder::EpochOrder(std::int64_t count, std::uint64_t seed, bool shuffle)
    : count_(count), seed_(seed), shuffle_(shuffle) {
  if (count > std::numeric_limits<std::uint32_t>::max()) {
    throw Error("", text_of(count, " sequences are more than 2^32 - 1"), "split the data set");
  }
}

std::uint32_t EpochOrder::at(std::int64_t epoch, std::int64_t index) {
  HONE_ASSERT(epoch >= 0 && index >= 0 && index < count_, "epoch ", epoch, ", ", index, " of ", count_);
  if (!shuffle_) return static_cast<std::uint32_t>(index);
  if (epoch != epoch_) {
    permutation_ = RandomStream(seed_, "shuffle", static_cast<std::uint64_t>(epoch))
                       .permutation(static_cast<std::uint32_t>(count_));
    epoch_ = epoch;
  }
  return permutation_[static_cast<std::size_t>(index)];
}

HostBatch BatchLoader::batch_at(LoaderPosition position) { return joined(sequences_at(position)); }

std::vector<HostBatch> BatchLoader::next_sequences() {
  std::vector<HostBatch> sequences = sequences_at(position_);
  ++position_.index;
  if (position_.index == batches_per_epoch()) position_ = {position_.epoch + 1, 0};
  return sequences;
}

void BatchLoader::skip(std::int64_t count) {
  position_.index += std::min(count, batches_per_epoch() - position_.index);
  if (position_.index == batches_per_epoch()) position_ = {position_.epoch + 1, 0};
}

HostBatch BatchLoader::next() { return joined(next_sequences()); }

void BatchLoader::seek(LoaderPosition position) {
  if (position.epoch < 0 || position.index < 0 || position.index >= batches_per_epoch()) {
    throw Error("data position", text_of("epoch ", position.epoch, ", batch ", position.index, ", but an epoch has ",
                                         batches_per_epoch(), " batches"));
  }
  position_ = position;
}

Json BatchLoader::state() const {
  const Identity now = identity();
  return {{"epoch", position_.epoch},
          {"index", position_.index},
          {"seed", now.seed},
          {"batch", now.batch},
          {"data", now.data}};
}

void BatchLoader::restore(const Json& state) {
  const Identity now = identity();
  require_same("seed", field<std::uint64_t>(state, "seed"), now.seed, "use the checkpoint's seed");
  require_same("per_device_train_batch_size", field<std::int64_t>(state, "batch"), now.batch,
               "use the checkpoint's batch size");
  require_same("training data", field<std::string>(state, "data"), now.data,
               "the data, its tokenizer or its options have changed: resume with those of the checkpoint");
  seek({field<std::int64_t>(state, "epoch"), field<std::int64_t>(state, "index")});
}

std::unique_ptr<BatchLoader> make_row_loader(ExampleSet set, PackedRows rows, const RowLoaderOptions& options) {
  return std::make_unique<RowLoader>(std::move(set), std::move(rows), options);
}

std::unique_ptr<BatchLoader> make_window_loader(ExampleSet stream, const WindowLoaderOptions& options) {
  return std::make_unique<WindowLoader>(std::move(stream), options);
}

StepSizes step_sizes(BatchLoader& loader, std::int64_t batches_per_step) {
  constexpr std::size_t kMostSequences = std::size_t{1} << 16;
  StepSizes sizes{.batch = loader.limits(), .longest = loader.longest(), .batches_per_step = batches_per_step};
  std::size_t sequences = 0;
  for (std::int64_t at = 0; at < loader.batches_per_epoch() && sequences < kMostSequences; ++at) {
    if (at % batches_per_step == 0) sizes.steps.emplace_back();
    const std::vector<BatchLimits> batch = loader.sizes_at({0, at});
    sizes.steps.back().insert(sizes.steps.back().end(), batch.begin(), batch.end());
    sequences += batch.size();
  }
  return sizes;
}

std::vector<HostBatch> lay_micro_batches(std::span<const HostBatch> sequences, BatchLimits limits) {
  std::vector<BatchLimits> sizes;
  for (const HostBatch& sequence : sequences) sizes.push_back({sequence.token_count(), sequence.document_count()});
  std::vector<HostBatch> batches;
  std::size_t first = 0;
  for (const std::size_t end : cut_micro_batches(sizes, limits)) {
    batches.push_back(joined(sequences.subspan(first, end - first)));
    first = end;
  }
  return batches;
}

ChunkOrder::ChunkOrder(std::int64_t count, std::int64_t chunk, std::uint64_t seed, bool shuffle)
    : order_(count, seed, shuffle), chunk_(chunk) {
  HONE_ASSERT(chunk >= 1, chunk);
  if (chunk > count) {
    throw Error("the dataset", text_of("has ", count, " prompts, but a generation needs ", chunk),
                "lower generation_batch_size / num_generations, or provide more prompts");
  }
}

std::vector<std::uint32_t> ChunkOrder::at(LoaderPosition position) {
  HONE_ASSERT(position.index >= 0 && position.index < chunks_per_epoch(), position.index);
  std::vector<std::uint32_t> chunk;
  chunk.reserve(static_cast<std::size_t>(chunk_));
  for (std::int64_t i = 0; i < chunk_; ++i) chunk.push_back(order_.at(position.epoch, position.index * chunk_ + i));
  return chunk;
}

}  // namespace hone
