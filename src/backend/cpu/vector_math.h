// Elementary functions and reductions whose results are bitwise the same for any vectorization by the compiler and on
// any machine.
//
// The f32 functions are branch-free polynomials with explicit fma, so that plain loops over them vectorize; the
// constants are those of Moshier's Cephes library. Their error is below 2 ulp. The f64 overloads call the standard
// library: they are for references, not for speed.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"

// A function with this attribute is compiled for AVX2 and for AVX-512, and the machine's is called. Its loops have the
// same bits in both: the functions below do not depend on the vectors' width, and products are not contracted. The
// thread sanitizer is not ready when the function is chosen, so that its builds have the first only.
#ifdef __SANITIZE_THREAD__
#define HONE_VECTOR_CLONES
#else
#define HONE_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "default")))
#endif

namespace hone {

// AVX2 vectors, the baseline of the build; bf16 is widened to f32 when loaded.
template <class Real>
struct Lanes;
template <>
struct Lanes<float> {
  using Vector = __m256;
  static constexpr int kCount = 8;
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static Vector load(const BFloat16* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  // Rounds to bf16 as BFloat16 does.
  static void store(BFloat16* p, Vector v) {
    const __m256i word = _mm256_castps_si256(v);
    const __m256i upper = _mm256_srli_epi32(word, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(word, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i half = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
};
template <>
struct Lanes<double> {
  using Vector = __m256d;
  static constexpr int kCount = 4;
  static Vector load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, Vector v) { _mm256_storeu_pd(p, v); }
};

// Rounds `count` numbers to bf16 as BFloat16 does.
inline void narrow_row(const float* from, std::int64_t count, BFloat16* to) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) Lanes<float>::store(to + i, Lanes<float>::load(from + i));
  for (; i < count; ++i) to[i] = BFloat16(from[i]);
}

namespace detail {

// Returns condition ? a : b without a branch. With the conditional operator compilers may move arithmetic into a
// branch, which prevents vectorization.
inline float select(bool condition, float a, float b) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(a) & mask) | (std::bit_cast<std::uint32_t>(b) & ~mask));
}

// 2^n for -126 <= n <= 127.
inline float power_of_two(std::int32_t n) { return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23); }

}  // namespace detail

// e^x. -inf gives 0, subnormal results are not flushed to 0, overflow gives inf, NaN gives NaN.
inline float vexp(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  // Results that are 0 are selected, not computed: a multiplication that underflows takes about 100 cycles on some
  // machines.
  const bool vanishes = x < -104.0F;
  float y = detail::select(x < 89.0F, x, 89.0F);
  y = detail::select(vanishes, 0.0F, y);
  const float shifted = std::fma(y, 1.44269504088896341F, kRound);
  const float n = shifted - kRound;
  float r = std::fma(n, -0.693359375F, y);
  r = std::fma(n, 2.12194440e-4F, r);
  float p = std::fma(1.9875691500e-4F, r, 1.3981999507e-3F);
  p = std::fma(p, r, 8.3334519073e-3F);
  p = std::fma(p, r, 4.1665795894e-2F);
  p = std::fma(p, r, 1.6666665459e-1F);
  p = std::fma(p, r, 5.0000001201e-1F);
  p = std::fma(p, r * r, r) + 1.0F;
  const auto whole =
      static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound));
  const std::int32_t half = whole >> 1;
  const float value = p * detail::power_of_two(half) * detail::power_of_two(whole - half);
  return detail::select(vanishes, 0.0F, detail::select(x == x, value, x));
}
inline double vexp(double x) { return std::exp(x); }

// Natural logarithm. 0 gives -inf, a negative x or NaN gives NaN, inf gives inf.
inline float vlog(float x) {
  const bool tiny = x < std::numeric_limits<float>::min();
  const float normal = x * detail::select(tiny, 8388608.0F, 1.0F);
  // Decompose x = m * 2^e with m in [sqrt(1/2), sqrt(2)); below, m holds m - 1.
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(normal) - 0x3F3504F3U;
  const auto e = static_cast<float>(static_cast<std::int32_t>(bits) >> 23) - detail::select(tiny, 23.0F, 0.0F);
  const float m = std::bit_cast<float>((bits & 0x007FFFFFU) + 0x3F3504F3U) - 1.0F;
  const float z = m * m;
  float p = std::fma(7.0376836292e-2F, m, -1.1514610310e-1F);
  p = std::fma(p, m, 1.1676998740e-1F);
  p = std::fma(p, m, -1.2420140846e-1F);
  p = std::fma(p, m, 1.4249322787e-1F);
  p = std::fma(p, m, -1.6668057665e-1F);
  p = std::fma(p, m, 2.0000714765e-1F);
  p = std::fma(p, m, -2.4999993993e-1F);
  p = std::fma(p, m, 3.3333331174e-1F);
  float y = p * m * z;
  y = std::fma(e, -2.12194440e-4F, y);
  y = std::fma(-0.5F, z, y);
  float value = std::fma(e, 0.693359375F, m + y);
  value = detail::select(x < std::numeric_limits<float>::infinity(), value, x);  // inf and NaN
  value = detail::select(x < 0.0F, std::numeric_limits<float>::quiet_NaN(), value);
  return detail::select(x == 0.0F, -std::numeric_limits<float>::infinity(), value);
}
inline double vlog(double x) { return std::log(x); }

// 1 / (1 + e^-x), accurate in both tails.
inline float vsigmoid(float x) {
  const float e = vexp(-std::fabs(x));
  return detail::select(x < 0.0F, e, 1.0F) / (1.0F + e);
}
inline double vsigmoid(double x) { return x < 0.0 ? std::exp(x) / (1.0 + std::exp(x)) : 1.0 / (1.0 + std::exp(-x)); }

inline float vtanh(float x) {
  const float a = std::fabs(x);
  const float large = 1.0F - 2.0F / (vexp(2.0F * a) + 1.0F);
  const float z = x * x;
  float p = std::fma(-5.70498872745e-3F, z, 2.06390887954e-2F);
  p = std::fma(p, z, -5.37397155531e-2F);
  p = std::fma(p, z, 1.33314422036e-1F);
  p = std::fma(p, z, -3.33332819422e-1F);
  const float small = std::fma(p * z, a, a);
  return std::copysign(detail::select(a < 0.625F, small, large), x);
}
inline double vtanh(double x) { return std::tanh(x); }

// Reductions over n elements in sixteen lanes: lane i takes the elements i, i + 16, ... in order; then the lanes are
// combined as a tree, lane i with lane i + 8, then i + 4, i + 2, i + 1. The order, and with it the result, depends only
// on n.
namespace detail {

inline __m256 fused(__m256 x, __m256 y, __m256 z) { return _mm256_fmadd_ps(x, y, z); }
inline __m256d fused(__m256d x, __m256d y, __m256d z) { return _mm256_fmadd_pd(x, y, z); }
inline float fused(float x, float y, float z) { return std::fma(x, y, z); }
inline double fused(double x, double y, double z) { return std::fma(x, y, z); }

// Computes lane[i % 16] = step(lane[i % 16], x[i] ...) for ascending i, starting at `start`, and combines the lanes.
template <class Real, class Step, class Combine, class... Ts>
Real reduce16(std::int64_t n, Real start, const Step& step, const Combine& combine, const Ts*... x) {
  using L = Lanes<Real>;
  constexpr int kVectors = 16 / L::kCount;
  Real lane[16];
  std::fill_n(lane, 16, start);
  std::int64_t i = 0;
  if (n >= 16) {
    typename L::Vector v[kVectors];
    for (int j = 0; j < kVectors; ++j) v[j] = L::load(lane);
    for (; i + 16 <= n; i += 16) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) v[j] = step(v[j], L::load(x + i + j * L::kCount)...);
    }
    for (int j = 0; j < kVectors; ++j) L::store(lane + j * L::kCount, v[j]);
  }
  for (int j = 0; j < 16 && i + j < n; ++j) lane[j] = step(lane[j], static_cast<Real>(x[i + j])...);
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lane[j] = combine(lane[j], lane[j + width]);
  }
  return lane[0];
}

}  // namespace detail

// Sum of x[i].
template <class T>
[[nodiscard]] Accumulator<T> sum16(const T* x, std::int64_t n) {
  const auto add = [](auto a, auto b) { return a + b; };
  return detail::reduce16(n, Accumulator<T>(0), add, add, x);
}

// Sum of x[i] * y[i] by fused multiply-adds.
template <class T, class U>
[[nodiscard]] Accumulator<T> dot16(const T* x, const U* y, std::int64_t n) {
  const auto add_product = [](auto sum, auto a, auto b) { return detail::fused(a, b, sum); };
  const auto add = [](auto a, auto b) { return a + b; };
  return detail::reduce16(n, Accumulator<T>(0), add_product, add, x, y);
}

// Maximum, ignoring NaN; -inf if there is no other element.
template <class T>
[[nodiscard]] Accumulator<T> max16(const T* x, std::int64_t n) {
  const auto greater = [](auto a, auto b) { return b > a ? b : a; };
  return detail::reduce16(n, -std::numeric_limits<Accumulator<T>>::infinity(), greater, greater, x);
}

}  // namespace hone
