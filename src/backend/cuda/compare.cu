#include <cstdint>

#include "backend/cuda/check.h"
#include "backend/cuda/compare.h"
#include "backend/gpu/kernel.cuh"

namespace hone {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocks = 1024;

// Grid-stride loop. The sum consists of integers, so the order of the atomic additions does not change it.
__global__ void compare_words(const std::uint32_t* a, const std::uint32_t* b, std::size_t words,
                              unsigned long long* count) {
  unsigned long long differing = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) {
    differing += a[i] != b[i];
  }
  if (differing > 0) atomicAdd(count, differing);
}

}  // namespace

void count_differences(const void* a, const void* b, std::size_t bytes, unsigned long long* count,
                       cudaStream_t stream) {
  compare_words<<<kBlocks, kThreads, 0, stream>>>(static_cast<const std::uint32_t*>(a),
                                                  static_cast<const std::uint32_t*>(b), bytes / 4, count);
  check_launch("count_differences");
}

}  // namespace hone
