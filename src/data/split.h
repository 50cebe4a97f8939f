// Which examples train and which are held out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/example_set.h"

namespace hone {

// Example numbers; the two parts are disjoint and cover all.
struct TrainTestSplit {
  std::vector<std::uint32_t> train;
  std::vector<std::uint32_t> test;
};

[[nodiscard]] std::vector<std::uint32_t> all_examples(std::int64_t count);

// `test_size` (test_split_size): below 1 a fraction, rounded up to whole examples; from 1 on a number of examples; 0:
// no test part. Shuffled by RandomStream(seed, "split"); the test part comes first in the shuffled order, as in
// datasets' train_test_split. Throws Error where a part would be empty.
[[nodiscard]] TrainTestSplit split_shuffled(std::int64_t count, double test_size, std::uint64_t seed);

// Cuts a stream of text at the fractions of its tokens, in order: {0.9, 0.1} gives the first 90% and the rest. The
// fractions must be positive and sum to 1, and no part may be empty; throws Error.
[[nodiscard]] std::vector<ExampleSet> split_in_order(const ExampleSet& stream, std::span<const double> fractions);

}  // namespace hone
