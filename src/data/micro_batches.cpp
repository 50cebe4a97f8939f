#include "data/micro_batches.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

// Capacities are multiples of this number of tokens, the rows that a GPU's GEMM computes in one tile at least.
constexpr std::int64_t kTile = 128;

std::int64_t tiles_up(std::int64_t tokens) { return (tokens + kTile - 1) / kTile * kTile; }

// The smallest number of documents for which no micro-batch of the known steps is cut earlier than its tokens demand.
std::int64_t documents_for(const StepSizes& sizes, std::int64_t tokens) {
  std::int64_t most = tokens >= sizes.batch.tokens ? sizes.batch.documents : sizes.longest.documents;
  for (const std::vector<BatchLimits>& step : sizes.steps) {
    std::size_t first = 0;
    for (const std::size_t end : cut_micro_batches(step, {tokens, std::numeric_limits<std::int64_t>::max()})) {
      std::int64_t documents = 0;
      for (; first < end; ++first) documents += step[first].documents;
      most = std::max(most, documents);
    }
  }
  return most;
}

std::vector<std::int64_t> tokens_of_micro_batches(const StepSizes& sizes, BatchLimits limits) {
  std::vector<std::int64_t> counts;
  for (const std::vector<BatchLimits>& step : sizes.steps) {
    std::size_t first = 0;
    for (const std::size_t end : cut_micro_batches(step, limits)) {
      std::int64_t& tokens = counts.emplace_back(0);
      for (; first < end; ++first) tokens += step[first].tokens;
    }
  }
  return counts;
}

// The capacities that may be chosen, ascending to `most`: at most 64 of them, so that choosing is quick.
std::vector<std::int64_t> grid_of(std::int64_t most) {
  constexpr std::int64_t kPoints = 64;
  const std::int64_t step = tiles_up((most + kPoints - 1) / kPoints);
  std::vector<std::int64_t> grid;
  for (std::int64_t at = step; at < most; at += step) grid.push_back(at);
  grid.push_back(most);
  return grid;
}

// Chooses points of a grid by dynamic programming over the largest point chosen so far.
class CapacityChoice {
 public:
  CapacityChoice(std::span<const std::int64_t> micro_batches, std::vector<std::int64_t> grid)
      : grid_(std::move(grid)), below_(grid_.size() + 1, 0), cost_(grid_.size()), previous_(1) {
    for (const std::int64_t tokens : micro_batches) {
      const auto point = std::ranges::lower_bound(grid_, tokens) - grid_.begin();
      HONE_ASSERT(point < std::ssize(grid_), tokens, " tokens, capacity ", grid_.back());
      ++below_[static_cast<std::size_t>(point) + 1];
    }
    for (std::size_t i = 1; i < below_.size(); ++i) below_[i] += below_[i - 1];
    for (std::size_t i = 0; i < grid_.size(); ++i) cost_[i] = rows(0, i);
    previous_[0].assign(grid_.size(), 0);
  }

  // Rows of all micro-batches with the best capacities, as many as add() has made.
  [[nodiscard]] std::int64_t rows() const { return cost_.back(); }
  // Allows one capacity more.
  void add() {
    std::vector<std::int64_t> cost(cost_);
    std::vector<std::size_t>& from = previous_.emplace_back(grid_.size(), 0);
    for (std::size_t at = 1; at < grid_.size(); ++at) {
      for (std::size_t before = 0; before < at; ++before) {
        const std::int64_t with = cost_[before] + rows(before + 1, at);
        if (with >= cost[at]) continue;
        cost[at] = with;
        from[at] = before + 1;
      }
    }
    cost_ = std::move(cost);
  }
  [[nodiscard]] std::vector<std::int64_t> capacities() const {
    std::vector<std::int64_t> chosen{grid_.back()};
    std::size_t at = grid_.size() - 1;
    for (std::size_t used = previous_.size(); used-- > 0;) {
      if (previous_[used][at] == 0) continue;
      at = previous_[used][at] - 1;
      chosen.push_back(grid_[at]);
    }
    std::ranges::reverse(chosen);
    return chosen;
  }

 private:
  // Rows of the micro-batches that need one of the points [first, last], at the capacity of `last`.
  [[nodiscard]] std::int64_t rows(std::size_t first, std::size_t last) const {
    return grid_[last] * (below_[last + 1] - below_[first]);
  }

  std::vector<std::int64_t> grid_;
  std::vector<std::int64_t> below_;  // [grid + 1]: micro-batches that fit below the point
  std::vector<std::int64_t> cost_;   // [grid]: rows of the micro-batches up to the point, the largest one chosen
  std::vector<std::vector<std::size_t>> previous_;  // [capacities][grid]: 1 + the next smaller point chosen; 0: none
};

}  // namespace

std::vector<std::size_t> cut_micro_batches(std::span<const BatchLimits> sequences, BatchLimits limits) {
  std::vector<std::size_t> ends;
  BatchLimits filled;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const BatchLimits& next = sequences[i];
    HONE_ASSERT(next.tokens <= limits.tokens && next.documents <= limits.documents, next.tokens, " tokens in ",
                next.documents, " documents, limits ", limits.tokens, " and ", limits.documents);
    const bool fits =
        next.tokens <= limits.tokens - filled.tokens && next.documents <= limits.documents - filled.documents;
    if (i > 0 && !fits) {
      ends.push_back(i);
      filled = {};
    }
    filled.tokens += next.tokens;
    filled.documents += next.documents;
  }
  if (!sequences.empty()) ends.push_back(sequences.size());
  return ends;
}

std::int64_t tokens_of_step(std::int64_t batch, std::int64_t batches) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return batch > kMost / std::max<std::int64_t>(batches, 1) ? kMost : batch * batches;
}

MicroBatchShape micro_batch_shape(const StepSizes& sizes, std::optional<std::int64_t> max_tokens,
                                  std::string_view data) {
  if (max_tokens && *max_tokens < sizes.longest.tokens) {
    throw Error("max_tokens_per_micro_batch",
                text_of("is ", *max_tokens, ", but the longest sequence of the ", data, " data has ",
                        sizes.longest.tokens, " tokens, and a sequence is never split"),
                text_of("at least ", sizes.longest.tokens, ", or shorter sequences"));
  }
  // No micro-batch has more tokens than a step.
  const std::int64_t whole = tokens_of_step(sizes.batch.tokens, sizes.batches_per_step);
  MicroBatchShape shape;
  shape.limits.tokens = std::min(max_tokens.value_or(sizes.batch.tokens), whole);
  shape.limits.documents = documents_for(sizes, shape.limits.tokens);
  shape.capacities = fitting_capacities(tokens_of_micro_batches(sizes, shape.limits), shape.limits.tokens);
  return shape;
}

std::vector<std::int64_t> fitting_capacities(std::span<const std::int64_t> micro_batches, std::int64_t most) {
  constexpr std::int64_t kLeastShare = 200;
  CapacityChoice choice(micro_batches, grid_of(most));
  std::vector<std::int64_t> capacities = choice.capacities();
  for (std::size_t count = 1; count < kMostCapacities; ++count) {
    const std::int64_t before = choice.rows();
    choice.add();
    if ((before - choice.rows()) * kLeastShare < before || before == choice.rows()) break;
    capacities = choice.capacities();
  }
  return capacities;
}

std::vector<std::int64_t> even_capacities(std::int64_t most) {
  constexpr std::int64_t kParts = 32;
  constexpr std::int64_t kCoarse = 2;  // parts from one capacity to the next
  constexpr std::int64_t kFineFrom = 24;
  std::vector<std::int64_t> capacities;
  for (std::int64_t part = kCoarse; part < kParts; part += part < kFineFrom ? kCoarse : 1) {
    const std::int64_t capacity = tiles_up((most * part + kParts - 1) / kParts);
    if (capacity < most && (capacities.empty() || capacity > capacities.back())) capacities.push_back(capacity);
  }
  capacities.push_back(most);
  return capacities;
}

}  // namespace hone
