// What a block that samples has in shared memory while it looks for the last token to keep: a histogram of tokens by
// digits of their place, then a list of the few that are left.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/linear_logprobs/log_softmax.cuh"

namespace hone {

inline constexpr int kSampleThreads = kLogSoftmaxThreads;
inline constexpr int kSampleDigitBits = 11;
inline constexpr int kSampleBins = 1 << kSampleDigitBits;
inline constexpr int kSampleBinsAThread = kSampleBins / kSampleThreads;
inline constexpr int kSampleListed = 1024;  // tokens among which a place is found by comparing all pairs

template <class A>
using SampleKey = std::conditional_t<std::is_same_v<A, double>, std::uint64_t, std::uint32_t>;

// Descends where the logit ascends. Both zeros are one.
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

// A place in the order of tokens, the most probable first, the lower id before the higher.
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
  std::uint32_t low[kSampleBins];  // the mass: 64 bits in two halves, as 32 bits have faster atomics
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
  };
  LogSoftmaxState<A> softmax;
  LogSoftmaxScratch<A> scratch;
  std::uint64_t warp_sums[kSampleThreads / 32];
  std::uint64_t left;   // of what a search looks for
  std::uint32_t found;  // tokens in the bin that it lies in
  std::uint32_t listed;
  int bin;
  int chunk;
  std::int32_t token;
  SamplePlace<A> last;  // of the tokens that are kept
};

// The sum of the values of this thread and those before it; `total` is that of all. Every thread of the block calls it.
__device__ inline std::uint64_t block_scan(std::uint64_t value, std::uint64_t* warp_sums, std::uint64_t& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint64_t before = __shfl_up_sync(0xFFFFFFFFu, value, distance);
    if (lane >= distance) value += before;
  }
  __syncthreads();  // what an earlier call wrote has been read
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
