// Splits examples into a training part and a held-out part.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/example_set.h"

namespace hone {

// Example numbers; the two parts are disjoint and together cover all examples.
struct TrainTestSplit {
  std::vector<std::uint32_t> train;
  std::vector<std::uint32_t> test;
};

// Returns 0, 1, ..., count - 1. Throws Error if there are more than 2^32 - 1 examples.
[[nodiscard]] std::vector<std::uint32_t> all_examples(std::int64_t count);

// Splits after a shuffle by RandomStream(seed, "split"). `test_size` (test_split_size): below 1 it is a fraction,
// rounded up to whole examples; from 1 it is a number of examples; 0 means no test part. The test part is the first of
// the shuffled order, as in datasets' train_test_split. Throws Error if a part would be empty.
[[nodiscard]] TrainTestSplit split_shuffled(std::int64_t count, double test_size, std::uint64_t seed);

// Cuts a text stream at the fractions of its tokens, in order: {0.9, 0.1} yields the first 90% and the rest. The
// fractions must be positive and sum to 1, and no part may be empty; otherwise throws Error.
[[nodiscard]] std::vector<ExampleSet> split_in_order(const ExampleSet& stream, std::span<const double> fractions);

}  // namespace hone
