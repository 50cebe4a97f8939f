#include <immintrin.h>

#include "backend/cpu/gemm_kernels.h"

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

// Six rows by two vectors: twelve sums, two vectors of b and one of a take 15 of the 16 vector registers.
constexpr int kRows = 6;

template <class V, int Rows>
void tile(std::int64_t k, const typename V::Real* a, const typename V::Real* b, typename V::Real* c, std::int64_t ldc,
          bool load) {
  typename V::Vector low[Rows], high[Rows];
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
    low[r] = load ? V::load(c + r * ldc) : V::zero();
    high[r] = load ? V::load(c + r * ldc + V::kLanes) : V::zero();
  }
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < k; ++i) {
    const auto b0 = V::load(b);
    const auto b1 = V::load(b + V::kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      const auto x = V::broadcast(a + r);
      low[r] = V::fma(x, b0, low[r]);
      high[r] = V::fma(x, b1, high[r]);
    }
    a += kRows;
    b += 2 * V::kLanes;
  }
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
    V::store(c + r * ldc, low[r]);
    V::store(c + r * ldc + V::kLanes, high[r]);
  }
}

template <class V>
TileKernels<typename V::Real> kernels() {
  return {kRows, 2 * V::kLanes, {tile<V, 1>, tile<V, 2>, tile<V, 3>, tile<V, 4>, tile<V, 5>, tile<V, 6>}};
}

}  // namespace

TileKernels<float> tile_kernels_avx2() { return kernels<Float8>(); }
TileKernels<double> tile_kernels_avx2_f64() { return kernels<Double4>(); }

}  // namespace hone
