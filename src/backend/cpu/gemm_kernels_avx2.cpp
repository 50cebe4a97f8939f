#include <immintrin.h>

#define HONE_TILE_TARGET
#include "backend/cpu/gemm_tile.h"

namespace hone {
namespace {

struct Float8 {
  using Real = float;
  using Vector = __m256;
  static constexpr int kLanes = 8;
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const Real* p) { return _mm256_loadu_ps(p); }
  static Vector broadcast(const Real* p) { return _mm256_broadcast_ss(p); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static void store(Real* p, Vector v) { _mm256_storeu_ps(p, v); }
};

struct Double4 {
  using Real = double;
  using Vector = __m256d;
  static constexpr int kLanes = 4;
  static Vector zero() { return _mm256_setzero_pd(); }
  static Vector load(const Real* p) { return _mm256_loadu_pd(p); }
  static Vector broadcast(const Real* p) { return _mm256_broadcast_sd(p); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
  static void store(Real* p, Vector v) { _mm256_storeu_pd(p, v); }
};

// Six rows: twelve sums, two vectors of b and one of a take 15 of the 16 vector registers.
constexpr int kRows = 6;

}  // namespace

TileKernels<float> tile_kernels_avx2() { return make_tile_kernels<Float8>(std::make_integer_sequence<int, kRows>()); }
TileKernels<double> tile_kernels_avx2_f64() {
  return make_tile_kernels<Double4>(std::make_integer_sequence<int, kRows>());
}

}  // namespace hone
