// Tests of the emulation itself: what would be undefined on a GPU ends a launch with an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/hip/warp.cuh"
#include "core/error.h"
#include "hip/hip_runtime.h"

namespace hone::emulation {
namespace {

using testing::HasSubstr;

// Returns what the launch fails with; empty: it does not fail.
template <class Kernel, class... Arguments>
std::string failure(unsigned threads, std::size_t shared_bytes, const Kernel& kernel, Arguments... arguments) {
  try {
    kernel->*launch(1, threads, shared_bytes)(arguments...);
  } catch (const Defect& defect) {
    return defect.what();
  }
  return {};
}

// Every thread writes its number and reads its neighbour's.
void neighbour(int* out, bool with_barrier) {
  static int shared[128];
  enter_shared(&shared, sizeof(shared));
  const unsigned i = threadIdx.x;
  shared[i] = static_cast<int>(i);
  if (with_barrier) __syncthreads();
  out[i] = shared[(i + 1) % blockDim.x];
}

TEST(Emulation, ABarrierMakesWritesVisible) {
  std::vector<int> out(128);
  ASSERT_EQ(failure(128, 0, neighbour, out.data(), true), "");
  for (int i = 0; i < 128; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], (i + 1) % 128);
}

TEST(Emulation, AMissingBarrierGivesOtherResultsInEveryRun) {
  std::vector<int> first(128);
  std::vector<int> second(128);
  ASSERT_EQ(failure(128, 0, neighbour, first.data(), false), "");
  ASSERT_EQ(failure(128, 0, neighbour, second.data(), false), "");
  EXPECT_NE(first, second);
  EXPECT_NE(std::count(first.begin(), first.end(), -1), 0) << "shared memory does not begin as garbage";
}

TEST(Emulation, ThreadsAtDifferentBarriersAreAnError) {
  const auto kernel = [](unsigned) {
    if (threadIdx.x < 40) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  EXPECT_THAT(failure(64, 0, kernel, 0u), HasSubstr("different barriers"));
}

TEST(Emulation, ABarrierDoesNotWaitForThreadsThatHaveEnded) {
  const auto kernel = [](int* out) {
    if (threadIdx.x >= 32) return;
    __syncthreads();
    out[threadIdx.x] = 1;
  };
  std::vector<int> out(64);
  EXPECT_EQ(failure(64, 0, kernel, out.data()), "");
  EXPECT_EQ(std::count(out.begin(), out.end(), 1), 32);
}

TEST(Emulation, ABlockThatWaitsForeverIsAnError) {
  const auto kernel = [](unsigned) {
    // The first warp waits for the block, the second for its first lane, which is at the barrier.
    if (threadIdx.x < 33) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  };
  EXPECT_THAT(failure(64, 0, kernel, 0u), HasSubstr("waits forever"));
}

TEST(Emulation, AMaskWithALaneThatHasEndedIsAnError) {
  const auto kernel = [](int* out) {
    if (threadIdx.x % 32 >= 16) return;
    out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1, 1);
  };
  std::vector<int> out(64);
  EXPECT_THAT(failure(64, 0, kernel, out.data()), HasSubstr("has ended"));
}

TEST(Emulation, AMaskWithALaneThatDoesNotExistIsAnError) {
  const auto kernel = [](int* out) { out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1, 1); };
  std::vector<int> out(48);
  EXPECT_THAT(failure(48, 0, kernel, out.data()), HasSubstr("does not exist"));
}

TEST(Emulation, LanesAtOtherCollectivesAreAnError) {
  const auto kernel = [](int* out) {
    if (threadIdx.x % 2 == 0) {
      out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1, 2);
    } else {
      out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 2, 2);
    }
  };
  std::vector<int> out(32);
  EXPECT_THAT(failure(32, 0, kernel, out.data()), HasSubstr("another collective"));
}

TEST(Emulation, ALaneOutsideOfTheMaskIsAnError) {
  const auto reads = [](int* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0x0000FFFFu, 1, 16);
  };
  const auto calls = [](int* out) { out[threadIdx.x] = __shfl_xor_sync(0x0000FFFFu, 1, 1); };
  std::vector<int> out(32);
  EXPECT_THAT(failure(32, 0, reads, out.data()), HasSubstr("not in the mask"));
  EXPECT_THAT(failure(32, 0, calls, out.data()), HasSubstr("not in its own mask"));
}

TEST(Emulation, WritesPastTheEndOfSharedMemoryAreAnError) {
  const auto kernel = [](unsigned bytes) { dynamic_shared[bytes] = std::byte{0}; };
  EXPECT_EQ(failure(1, 64, kernel, 63u), "");
  EXPECT_THAT(failure(1, 64, kernel, 64u), HasSubstr("past its 64 bytes"));
}

// The two warps of a wave of 64 exchange nothing.
TEST(Emulation, AWaveIsTwoWarps) {
  const auto kernel = [](unsigned* out) {
    const unsigned i = threadIdx.x;
    out[i] = __ballot_sync(0xFFFFFFFFu, i % 3 == 0);
    out[64 + i] = __shfl_sync(0xFFFFFFFFu, i, 5);
    out[128 + i] = __shfl_xor_sync(0xFFFFFFFFu, i, 16);
    out[192 + i] = __shfl_up_sync(0xFFFFFFFFu, i, 4);
    out[256 + i] = __match_any_sync(0xFFFFFFFFu, i % 4);
    out[320 + i] = __reduce_max_sync(0xFFFFFFFFu, i);
  };
  std::vector<unsigned> out(384);
  ASSERT_EQ(failure(64, 0, kernel, out.data()), "");
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned start = i / 32 * 32;
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32; ++lane) ballot |= (start + lane) % 3 == 0 ? 1u << lane : 0u;
    EXPECT_EQ(out[i], ballot) << i;
    EXPECT_EQ(out[64 + i], start + 5) << i;
    EXPECT_EQ(out[128 + i], i ^ 16u) << i;
    EXPECT_EQ(out[192 + i], i % 32 < 4 ? i : i - 4) << i;
    EXPECT_EQ(out[256 + i], 0x11111111u << i % 4) << i;
    EXPECT_EQ(out[320 + i], start + 31) << i;
  }
}

}  // namespace
}  // namespace hone::emulation
