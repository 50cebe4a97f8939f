// Tests of collective operations between CPUs, with a thread for each rank.
#include "backend/collective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/random.h"
#include "support/rank_threads.h"

namespace hone {
namespace {

using test::run_ranks;

// The numbers of one rank, of very different sizes, so that another order of a sum rounds differently.
template <class T>
std::vector<T> numbers_of(int rank, std::size_t count) {
  const RandomStream random(static_cast<std::uint64_t>(rank), "numbers");
  std::vector<T> numbers(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double scale = std::ldexp(1.0, static_cast<int>(random.below(2 * i, 30)) - 15);
    numbers[i] = static_cast<T>(static_cast<float>((random.uniform(2 * i + 1) - 0.5) * scale));
  }
  return numbers;
}

// The sums in the order of ranks, in the accumulator's type.
template <class T, class A>
std::vector<T> sums_of(int size, std::size_t count) {
  std::vector<std::vector<T>> all;
  for (int r = 0; r < size; ++r) all.push_back(numbers_of<T>(r, count));
  std::vector<T> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    A sum = static_cast<A>(all[0][i]);
    for (int r = 1; r < size; ++r) sum += static_cast<A>(all[static_cast<std::size_t>(r)][i]);
    sums[i] = static_cast<T>(sum);
  }
  return sums;
}

template <class T, class A>
void check_sums(int size, std::size_t count) {
  const std::vector<T> expected = sums_of<T, A>(size, count);
  run_ranks(size, [&](Collective& job) {
    std::vector<T> values = numbers_of<T>(job.rank(), count);
    job.all_reduce(reinterpret_cast<std::byte*>(values.data()), DTypeOf<T>::value, count);
    EXPECT_EQ(0, count == 0 ? 0 : std::memcmp(values.data(), expected.data(), count * sizeof(T)))
        << size << " ranks, " << count;
  });
}

TEST(Collective, SumsAreInTheOrderOfRanks) {
  for (const int size : {2, 3, 4}) {
    for (const std::size_t count : {0, 1, 2, 1000, 300'001}) {
      check_sums<float, float>(size, count);
      check_sums<BFloat16, float>(size, count);
      check_sums<double, double>(size, count);
    }
  }
}

TEST(Collective, AReducedPartHasTheBitsOfTheWhole) {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 200'000;
  const std::vector<float> expected = sums_of<float, float>(kRanks, kCount);
  const std::vector<ByteRange> parts{{0, 40'000}, {40'000, 40'000}, {40'000, kCount * sizeof(float)}};
  run_ranks(kRanks, [&](Collective& job) {
    std::vector<float> values = numbers_of<float>(job.rank(), kCount);
    auto* data = reinterpret_cast<std::byte*>(values.data());
    job.reduce_scatter(data, DType::kF32, parts);
    const ByteRange& mine = parts[static_cast<std::size_t>(job.rank())];
    EXPECT_EQ(0, std::memcmp(data + mine.begin, reinterpret_cast<const std::byte*>(expected.data()) + mine.begin,
                             mine.end - mine.begin));
    job.all_gather(data, parts);
    EXPECT_EQ(values, expected);
  });
}

TEST(Collective, ABroadcastCopiesTheBytesOfItsRoot) {
  run_ranks(3, [&](Collective& job) {
    for (const int root : {0, 2}) {
      std::vector<float> values = numbers_of<float>(job.rank(), 1001);
      job.broadcast(reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float), root);
      EXPECT_EQ(values, numbers_of<float>(root, 1001));
    }
  });
}

}  // namespace
}  // namespace hone
