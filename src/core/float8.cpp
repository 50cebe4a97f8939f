#include "core/float8.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/parallel.h"

namespace hone {
namespace {

// Eight numbers of e4m3 in f32, times 2^-8. Shifted to the places of f16's exponent and fraction, a byte is its number
// times 2^-8 there, for subnormal numbers too.
__m256 widen8(const std::uint8_t* bytes) {
  const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
  const __m128i rest = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x7F)), 7);
  return _mm256_cvtph_ps(_mm_or_si128(sign, rest));
}

// The bits of f32 rounded to bf16, in the lower halves of the words.
__m256i rounded(__m256 values) {
  const __m256i words = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(words, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(words, _mm256_set1_epi32(0x7FFF)), odd);
  return _mm256_srli_epi32(sum, 16);
}

// The byte of a value of at most 448, without a branch, so that the compiler computes several at a time. Magnitudes
// below 2^-6 are rounded to multiples of 2^-9 by adding 2^14, whose last place that is. The bytes of the magnitudes are
// consecutive, so that a fraction that overflows increments the exponent.
std::uint8_t byte_of(float value) {
  constexpr std::uint32_t kSmallest = 0x3C800000;  // 2^-6 in f32, which is byte 8
  constexpr float kShifted = 0x1p14F;
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & 0x7FFFFFFFu;
  const std::uint32_t normal = ((magnitude + 0x7FFFFu + (magnitude >> 20 & 1u)) >> 20) - (kSmallest >> 20) + 8;
  const float shifted = std::bit_cast<float>(magnitude) + kShifted;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kShifted);
  return static_cast<std::uint8_t>((magnitude < kSmallest ? small : normal) | (word >> 24 & 0x80u));
}

}  // namespace

float e4m3_value(std::uint8_t byte) {
  const int exponent = byte >> 3 & 15;
  const int fraction = byte & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                        : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

std::uint8_t e4m3_of(float value) {
  HONE_ASSERT(std::fabs(value) <= kE4m3Max, value, " as e4m3");
  return byte_of(value);
}

bool has_e4m3_nan(std::span<const std::uint8_t> bytes) {
  std::uint8_t found = 0;
  for (const std::uint8_t byte : bytes) found |= (byte & 0x7F) == 0x7F ? 1 : 0;
  return found != 0;
}

float e4m3_scale(float amax) {
  HONE_ASSERT(amax >= 0 && amax <= kE4m3Max * kMostScale, "largest magnitude ", amax);
  return std::bit_cast<float>(e4m3_scale_bits_of_f32(std::bit_cast<std::uint32_t>(std::fabs(amax))));
}

void dequantize_e4m3(const std::uint8_t* bytes, float scale, std::int64_t count, BFloat16* out) {
  const float factor = scale * 256;
  const __m256 factors = _mm256_set1_ps(factor);
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i low = rounded(_mm256_mul_ps(widen8(bytes + i), factors));
    const __m256i high = rounded(_mm256_mul_ps(widen8(bytes + i + 8), factors));
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), both);
  }
  for (; i < count; ++i) out[i] = BFloat16(e4m3_value(bytes[i]) * scale);
}

namespace {

template <class T>
void quantize(const T* values, float scale, std::int64_t count, std::uint8_t* bytes) {
  if (std::isnan(scale)) {
    std::fill_n(bytes, count, std::uint8_t{0});
    return;
  }
  const float factor = 1 / scale;  // exact: the scale is a power of two
  for (std::int64_t i = 0; i < count; ++i) bytes[i] = byte_of(static_cast<float>(values[i]) * factor);
}

}  // namespace

void quantize_e4m3(const BFloat16* values, float scale, std::int64_t count, std::uint8_t* bytes) {
  quantize(values, scale, count, bytes);
}

void quantize_e4m3(const float* values, float scale, std::int64_t count, std::uint8_t* bytes) {
  quantize(values, scale, count, bytes);
}

float largest_magnitude(const BFloat16* values, std::int64_t count) {
  // Magnitudes of bf16 are ordered as their bits are; those of numbers that are not finite are the largest.
  std::uint16_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, static_cast<std::uint16_t>(values[i].bits & 0x7FFF));
  return std::bit_cast<float>(static_cast<std::uint32_t>(largest) << 16);
}

bool quantize_e4m3_blocks(const BFloat16* values, std::int64_t rows, std::int64_t columns, std::uint8_t* bytes,
                          float* scales) {
  const std::int64_t across = scale_blocks(columns);
  std::atomic<bool> fits = true;
  parallel_for(scale_blocks(rows) * across, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t row_begin = block / across * kScaleBlock;
      const std::int64_t row_end = std::min(row_begin + kScaleBlock, rows);
      const std::int64_t column = block % across * kScaleBlock;
      const std::int64_t count = std::min(kScaleBlock, columns - column);
      // Not a maximum of floats, which could lose a NaN.
      float amax = 0;
      for (std::int64_t row = row_begin; row < row_end; ++row) {
        const float largest = largest_magnitude(values + row * columns + column, count);
        if (!(largest <= amax)) amax = largest;
        if (!(amax <= kE4m3Max * kMostScale)) break;
      }
      if (!(amax <= kE4m3Max * kMostScale)) {
        fits = false;
        continue;
      }
      scales[block] = e4m3_scale(amax);
      for (std::int64_t row = row_begin; row < row_end; ++row) {
        const std::int64_t at = row * columns + column;
        quantize_e4m3(values + at, scales[block], count, bytes + at);
      }
    }
  });
  return fits;
}

void dequantize_e4m3_row(const std::uint8_t* bytes, const float* scales, std::int64_t column, std::int64_t count,
                         BFloat16* out) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t block = (column + done) / kScaleBlock;
    const std::int64_t size = std::min((block + 1) * kScaleBlock - column, count) - done;
    dequantize_e4m3(bytes + done, scales[block], size, out + done);
    done += size;
  }
}

}  // namespace hone
