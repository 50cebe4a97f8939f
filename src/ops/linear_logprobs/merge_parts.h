// Merges the statistics that the ranks of a tensor group have computed of their rows of the vocabulary. The same on
// CPUs and GPUs.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/dtype.h"

#if defined(__CUDACC__) || defined(__HIP__)
#define HONE_MERGE_FUNCTION __host__ __device__ inline
#else
#define HONE_MERGE_FUNCTION inline
#endif

namespace hone {

// Statistics that the ranks exchange: for each rank `kPartStatistics` arrays of one number a row, [ranks,
// kPartStatistics, rows].
struct PartStatistic {
  enum : std::int64_t { logp, entropy, hit, lse, max };  // log-probabilities and entropy of the softmax over the part
};
inline constexpr std::int64_t kPartStatistics = 5;

// Returns the logarithm of the sum of exp(logit) over all parts, merged in ascending order of tokens, in double.
// lse_of(part): the same of one part.
template <class LseOf>
HONE_MERGE_FUNCTION double merged_lse(std::int64_t parts, const LseOf& lse_of) {
  double most = lse_of(0);
  for (std::int64_t i = 1; i < parts; ++i) {
    const double lse = lse_of(i);
    if (!(lse <= most)) most = lse;  // a NaN stays
  }
  double sum = 0;
  for (std::int64_t i = 0; i < parts; ++i) sum += exp(lse_of(i) - most);
  return most + log(sum);
}

// Returns the log-probability of a token over all parts. part_logp and part_lse: those of the token's part; lse: of
// all.
HONE_MERGE_FUNCTION double merged_logp(double part_logp, double part_lse, double lse) {
  return part_logp + part_lse - lse;
}

// The same outputs as those of linear_logprobs.
template <class A>
struct MergedRow {
  A logp, entropy, hit, lse;
};

// Merges the parts of a row in ascending order of tokens, in double. all: [ranks, kPartStatistics, rows]. owner: the
// rank that has the target. The sum of exp(logit) is that of the parts' sums, exp(lse); a part has the share
// exp(lse of the part - lse) of the probability.
template <class A>
HONE_MERGE_FUNCTION MergedRow<A> merge_parts(const A* all, std::int64_t ranks, std::int64_t rows, std::int64_t row,
                                             std::int64_t owner) {
  const auto at = [&](std::int64_t rank, std::int64_t which) {
    return static_cast<double>(all[(rank * kPartStatistics + which) * rows + row]);
  };
  const double lse = merged_lse(ranks, [&](std::int64_t rank) { return at(rank, PartStatistic::lse); });
  double entropy = 0;
  bool hit = at(owner, PartStatistic::hit) != 0;
  const double best = at(owner, PartStatistic::max);
  for (std::int64_t r = 0; r < ranks; ++r) {
    const double less = lse - at(r, PartStatistic::lse);
    const double share = exp(-less);
    if (share != 0) entropy += share * (at(r, PartStatistic::entropy) + less);
    const double max = at(r, PartStatistic::max);
    if (r < owner ? !(max < best) : !(max <= best))
      hit = false;  // of equal logits the lowest token is the most probable
  }
  const double logp = merged_logp(at(owner, PartStatistic::logp), at(owner, PartStatistic::lse), lse);
  return {static_cast<A>(logp), static_cast<A>(entropy), hit ? A(1) : A(0), static_cast<A>(lse)};
}

}  // namespace hone
