// AVX-512 kernels. The build targets AVX2, so every function here has a target attribute.
#include <immintrin.h>

#define HONE_TILE_TARGET __attribute__((target("avx512f")))
#include "backend/cpu/gemm_tile.h"

namespace hone {
namespace {

struct Float16 {
  using Real = float;
  using Vector = __m512;
  static constexpr int kLanes = 16;
  HONE_TILE_INLINE static Vector zero() { return _mm512_setzero_ps(); }
  HONE_TILE_INLINE static Vector load(const Real* p) { return _mm512_loadu_ps(p); }
  HONE_TILE_INLINE static Vector broadcast(const Real* p) { return _mm512_set1_ps(*p); }
  HONE_TILE_INLINE static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  HONE_TILE_INLINE static void store(Real* p, Vector v) { _mm512_storeu_ps(p, v); }
};

}  // namespace

// Twelve rows: 24 sums, two vectors of b and one of a take 27 of the 32 vector registers.
TileKernels<float> tile_kernels_avx512() { return make_tile_kernels<Float16>(std::make_integer_sequence<int, 12>()); }

}  // namespace hone
