// Shared memory of a sampling block while it searches for the last token to keep: first a histogram of tokens by the
// digits of their rank, then a list of the few candidates that remain.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/linear_logprobs/log_softmax.cuh"

namespace hone {

inline constexpr int kSampleThreads = kLogSoftmaxThreads;
inline constexpr int kSampleDigitBits = 11;
inline constexpr int kSampleBins = 1 << kSampleDigitBits;
inline constexpr int kSampleBinsAThread = kSampleBins / kSampleThreads;
inline constexpr int kSampleListed = 1024;  // candidates at most that are ranked by comparing all pairs

template <class A>
using SampleKey = std::conditional_t<std::is_same_v<A, double>, std::uint64_t, std::uint32_t>;

// Integer key of a logit that descends as the logit ascends; +0 and -0 have the same key.
template <class A>
[[nodiscard]] __device__ SampleKey<A> sample_key_of(A logit) {
  using Key = SampleKey<A>;
  constexpr Key kSign = Key(1) << (8 * sizeof(Key) - 1);
  Key bits;
  if constexpr (std::is_same_v<A, double>) {
    bits = static_cast<Key>(__double_as_longlong(logit + 0.0));
  } else {
    bits = __float_as_uint(logit + 0.0f);
  }
  return ~((bits & kSign) != 0 ? ~bits : bits | kSign);
}

// Rank of a token: the most probable comes first, and the lower id among equals.
template <class A>
struct SamplePlace {
  SampleKey<A> key;
  std::int32_t id;
  [[nodiscard]] __device__ bool operator<=(const SamplePlace& other) const {
    return key != other.key ? key < other.key : id <= other.id;
  }
};

template <class A>
struct SampleHistogram {
  std::uint32_t tokens[kSampleBins];
  std::uint32_t low[kSampleBins];  // the mass, 64 bits in two halves because 32-bit atomics are faster
  std::uint32_t high[kSampleBins];
};

template <class A>
struct SampleList {
  SamplePlace<A> place[kSampleListed];
  std::uint64_t amount[kSampleListed];
};

inline constexpr int kSampleChunks = sizeof(SampleHistogram<float>) / sizeof(std::uint64_t);

template <class A>
struct SampleShared {
  union {
    SampleHistogram<A> histogram;
    SampleList<A> list;
    std::uint64_t chunk_mass[kSampleChunks];
    ChunkStatistics<A> statistics[kSampleThreads];
  };
  LogSoftmaxState<A> softmax;
  LogSoftmaxScratch<A> scratch;
  std::uint64_t warp_sums[kSampleThreads / 32];
  std::uint64_t left;   // amount still to be found within `bin` or `chunk`
  std::uint32_t found;  // number of tokens in `bin`
  std::uint32_t listed;
  int bin;
  int chunk;
  std::int32_t token;
  SamplePlace<A> last;  // rank of the last token that is kept
};

// Inclusive prefix sum over the block; `total` is the sum over all threads. Every thread of the block calls it.
__device__ inline std::uint64_t block_scan(std::uint64_t value, std::uint64_t* warp_sums, std::uint64_t& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint64_t before = __shfl_up_sync(0xFFFFFFFFu, value, distance);
    if (lane >= distance) value += before;
  }
  __syncthreads();  // the sums of an earlier call have been read
  if (lane == 31) warp_sums[warp] = value;
  __syncthreads();
  total = 0;
#pragma unroll
  for (int i = 0; i < kSampleThreads / 32; ++i) {
    if (i < warp) value += warp_sums[i];
    total += warp_sums[i];
  }
  return value;
}

}  // namespace hone
