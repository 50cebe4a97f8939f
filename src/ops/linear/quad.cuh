// Exchanges between the four lanes of a quad, who have the columns of a row of a product's fragments.
#pragma once

#include <cstdint>

#include "backend/gpu/kernel.cuh"

namespace hone {

// Transposes 4 x 4 words of the four threads of a quad: word i of thread j becomes word j of thread i.
__device__ inline void transpose_quad(std::uint32_t (&words)[4], int thread) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool upper = (thread & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      std::uint32_t& low = words[i];
      std::uint32_t& high = words[i | distance];
      const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, upper ? low : high, distance);
      (upper ? low : high) = got;
    }
  }
}

}  // namespace hone
