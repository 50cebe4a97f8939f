#include "data/split.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace hone {

std::vector<std::uint32_t> all_examples(std::int64_t count) {
  if (count > std::numeric_limits<std::uint32_t>::max()) {
    throw Error("", text_of(count, " examples are more than 2^32 - 1"), "split the dataset");
  }
  std::vector<std::uint32_t> examples(static_cast<std::size_t>(count));
  std::iota(examples.begin(), examples.end(), 0u);
  return examples;
}

TrainTestSplit split_shuffled(std::int64_t count, double test_size, std::uint64_t seed) {
  if (!(test_size >= 0) || (test_size >= 1 && test_size != std::floor(test_size))) {
    throw Error("test_split_size", text_of("is ", test_size), "give a fraction below 1, or a whole number of examples");
  }
  const double wanted = test_size < 1 ? std::ceil(test_size * static_cast<double>(count)) : test_size;
  if (test_size == 0) return {.train = all_examples(count), .test = {}};
  if (wanted < 1 || wanted >= static_cast<double>(count)) {
    throw Error("test_split_size", text_of("is ", test_size, ", which leaves a part of ", count, " examples empty"),
                "give a fraction below 1, or fewer examples than there are");
  }
  const auto order = RandomStream(seed, "split").permutation(static_cast<std::uint32_t>(count));
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(wanted);
  return {.train = {middle, order.end()}, .test = {order.begin(), middle}};
}

std::vector<ExampleSet> split_in_order(const ExampleSet& stream, std::span<const double> fractions) {
  double sum = 0;
  for (const double fraction : fractions) {
    if (!(fraction > 0)) throw Error("split", text_of("has a part of ", fraction), "each part must be above 0");
    sum += fraction;
  }
  if (std::abs(sum - 1) > 1e-6) throw Error("split", text_of("the parts sum to ", sum), "they must sum to 1");

  std::vector<ExampleSet> parts;
  std::int64_t begin = 0;
  double upto = 0;
  for (std::size_t i = 0; i < fractions.size(); ++i) {
    upto += fractions[i];
    // Without the added 1e-6, rounding could turn 0.9 * 10 into 8.
    const auto cut = static_cast<std::int64_t>(upto * static_cast<double>(stream.token_count()) + 1e-6);
    const std::int64_t end = i + 1 == fractions.size() ? stream.token_count() : cut;
    if (end <= begin) {
      throw Error("split", text_of("part ", i + 1, " of ", stream.token_count(), " tokens would be empty"),
                  "give more text, or a larger part");
    }
    parts.push_back(stream.slice(begin, end));
    begin = end;
  }
  return parts;
}

}  // namespace hone
