#include "rl/sample_share.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.h"

namespace hone {

std::vector<std::size_t> share_of_samples(std::span<const std::size_t> lengths, std::size_t batch_size,
                                          std::size_t ranks, std::size_t rank) {
  HONE_ASSERT(lengths.size() % (batch_size * ranks) == 0, lengths.size(), " samples are not whole batches of ",
              batch_size, " for each of ", ranks, " ranks");
  const auto tokens_of = [&](std::size_t micro_batch) {
    const auto samples = lengths.subspan(micro_batch * batch_size, batch_size);
    return std::accumulate(samples.begin(), samples.end(), std::size_t{0});
  };
  std::vector<std::size_t> tokens(ranks, 0);
  std::vector<std::size_t> takers(ranks);
  std::vector<std::size_t> micro_batches(ranks);
  std::vector<std::size_t> own;
  for (std::size_t first = 0; first < lengths.size() / batch_size; first += ranks) {
    std::iota(takers.begin(), takers.end(), std::size_t{0});
    std::ranges::stable_sort(takers, std::less(), [&](std::size_t taker) { return tokens[taker]; });
    std::iota(micro_batches.begin(), micro_batches.end(), first);
    std::ranges::stable_sort(micro_batches, std::greater(), tokens_of);
    for (std::size_t i = 0; i < ranks; ++i) {
      tokens[takers[i]] += tokens_of(micro_batches[i]);
      if (takers[i] != rank) continue;
      for (std::size_t s = 0; s < batch_size; ++s) own.push_back(micro_batches[i] * batch_size + s);
    }
  }
  return own;
}

}  // namespace hone
