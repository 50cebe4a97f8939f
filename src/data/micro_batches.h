// Lays the sequences of an optimizer step into micro-batches, and chooses the capacities of the programs that run them.
// Works on sizes only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace hone {

// Size of a sequence (one document, or a row of packed documents), or the largest size of a micro-batch.
struct BatchLimits {
  std::int64_t tokens = 0;
  std::int64_t documents = 0;

  bool operator==(const BatchLimits&) const = default;
};

// Lays sequences into micro-batches in order: a sequence opens a new micro-batch if it does not fit into the current
// one. No other split into consecutive parts has fewer. Returns the end of each micro-batch, the number of sequences
// up to it. Each sequence must be within the limits.
[[nodiscard]] std::vector<std::size_t> cut_micro_batches(std::span<const BatchLimits> sequences, BatchLimits limits);

// The sequences that a run will read, as far as its programs depend on them.
struct StepSizes {
  BatchLimits batch;    // the largest sums over per_device_train_batch_size sequences
  BatchLimits longest;  // most tokens and most documents of one sequence
  std::int64_t batches_per_step = 1;
  std::vector<std::vector<BatchLimits>> steps;  // the sequences of some steps, as many as tell how full steps are
};

// The size of micro-batches and the programs that run them.
struct MicroBatchShape {
  BatchLimits limits;
  std::vector<std::int64_t> capacities;  // tokens of the programs, ascending; the last one is limits.tokens or more
};

// Returns the tokens of `batches` batches of `batch` tokens each, at most those that an i64 counts.
[[nodiscard]] std::int64_t tokens_of_step(std::int64_t batch, std::int64_t batches);

// Returns the shape for micro-batches of at most `max_tokens`; unset: StepSizes::batch, what the longest sequences of a
// batch need. Capacities are those that leave the least padding in the known steps. Throws Error that names `data` if a
// sequence is longer than max_tokens.
[[nodiscard]] MicroBatchShape micro_batch_shape(const StepSizes& sizes, std::optional<std::int64_t> max_tokens,
                                                std::string_view data);

// Returns at most kMostCapacities capacities, ascending to `most`, with the fewest rows without a token when each of
// these micro-batches runs in the smallest that holds it. A capacity that saves less than one of 200 rows is left
// out.
inline constexpr std::size_t kMostCapacities = 12;
[[nodiscard]] std::vector<std::int64_t> fitting_capacities(std::span<const std::int64_t> micro_batches,
                                                           std::int64_t most);
// Returns the sixteenths of `most` up to three quarters and from there its thirty-seconds, for micro-batches whose
// sizes are not known in advance: filled in order, most of them are nearly full.
[[nodiscard]] std::vector<std::int64_t> even_capacities(std::int64_t most);

}  // namespace hone
