// Division of a step's samples over the ranks of a job.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace hone {

// Returns the indices of the samples that `rank` trains on, ascending. Each `batch_size` consecutive samples are a
// micro-batch, and every rank gets one of each `ranks` micro-batches: the longest goes to the rank that has the fewest
// tokens so far, the next to the second, so that ranks finish at about the same time. Averages over micro-batches do
// not depend on who has them. lengths: tokens of each sample, `ranks` whole micro-batches or a multiple.
[[nodiscard]] std::vector<std::size_t> share_of_samples(std::span<const std::size_t> lengths, std::size_t batch_size,
                                                        std::size_t ranks, std::size_t rank);

}  // namespace hone
