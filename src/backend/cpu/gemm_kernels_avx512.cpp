// AVX-512 kernels. The build targets AVX2, so every function here has a target attribute, and none is an inline
// function or template instantiation shared with other files: the linker could otherwise select AVX-512 code for all
// machines.
#include <immintrin.h>

#include "backend/cpu/gemm_kernels.h"

namespace hone {
namespace {

// Twelve rows by two vectors: 24 sums, two vectors of b and one of a take 27 of the 32 vector registers.
constexpr int kRows = 12;
constexpr std::int64_t kLanes = 16;

template <int Rows>
__attribute__((target("avx512f"))) void tile(std::int64_t k, const float* a, const float* b, float* c, std::int64_t ldc,
                                             bool load) {
  __m512 low[Rows], high[Rows];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    low[r] = load ? _mm512_loadu_ps(c + r * ldc) : _mm512_setzero_ps();
    high[r] = load ? _mm512_loadu_ps(c + r * ldc + kLanes) : _mm512_setzero_ps();
  }
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < k; ++i) {
    const __m512 b0 = _mm512_loadu_ps(b);
    const __m512 b1 = _mm512_loadu_ps(b + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      const __m512 x = _mm512_set1_ps(a[r]);
      low[r] = _mm512_fmadd_ps(x, b0, low[r]);
      high[r] = _mm512_fmadd_ps(x, b1, high[r]);
    }
    a += kRows;
    b += 2 * kLanes;
  }
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    _mm512_storeu_ps(c + r * ldc, low[r]);
    _mm512_storeu_ps(c + r * ldc + kLanes, high[r]);
  }
}

}  // namespace

TileKernels<float> tile_kernels_avx512() {
  return {
      kRows,
      2 * kLanes,
      {tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>, tile<7>, tile<8>, tile<9>, tile<10>, tile<11>, tile<12>}};
}

}  // namespace hone
