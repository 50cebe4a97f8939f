#include "backend/cpu/gemm_pack.h"

#include <immintrin.h>

#include <algorithm>

#include "backend/cpu/vector_math.h"
#include "core/error.h"
#include "core/float8.h"

namespace hone {
namespace {

// Loads eight elements of each of two lines: the first four of both into `low`, the last four into `high`.
void load_pair(const float* p, const float* q, __m256& low, __m256& high) {
  low = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
  high = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4)), _mm_loadu_ps(q + 4), 1);
}
void load_pair(const BFloat16* p, const BFloat16* q, __m256& low, __m256& high) {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
  low = _mm256_castsi256_ps(_mm256_unpacklo_epi16(_mm256_setzero_si256(), both));
  high = _mm256_castsi256_ps(_mm256_unpackhi_epi16(_mm256_setzero_si256(), both));
}

template <int Lanes>
void store_lanes(float* out, __m256 v) {
  static_assert(Lanes == 4 || Lanes == 6 || Lanes == 8);
  if constexpr (Lanes == 8) {
    _mm256_storeu_ps(out, v);
  } else {
    _mm_storeu_ps(out, _mm256_castps256_ps128(v));
    if constexpr (Lanes == 6) _mm_storel_pi(reinterpret_cast<__m64*>(out + 4), _mm256_extractf128_ps(v, 1));
  }
}

// Transposes eight lines by four columns, given as the pairs of lines 0 and 4, 1 and 5, 2 and 6, 3 and 7, and stores
// the columns `width` elements apart.
template <int Lanes>
void store_columns(const __m256 (&pair)[4], float* out, std::int64_t width) {
  const __m256 t0 = _mm256_unpacklo_ps(pair[0], pair[1]);
  const __m256 t1 = _mm256_unpackhi_ps(pair[0], pair[1]);
  const __m256 t2 = _mm256_unpacklo_ps(pair[2], pair[3]);
  const __m256 t3 = _mm256_unpackhi_ps(pair[2], pair[3]);
  store_lanes<Lanes>(out, _mm256_shuffle_ps(t0, t2, 0x44));
  store_lanes<Lanes>(out + width, _mm256_shuffle_ps(t0, t2, 0xEE));
  store_lanes<Lanes>(out + 2 * width, _mm256_shuffle_ps(t1, t3, 0x44));
  store_lanes<Lanes>(out + 3 * width, _mm256_shuffle_ps(t1, t3, 0xEE));
}

// Packs eight depths of up to eight lines; missing lines are read from `zeros`.
template <int Lanes, class T>
void pack_block(const T* data, std::int64_t stride, std::int64_t lines, const T* zeros, std::int64_t width,
                float* out) {
  __m256 low[4], high[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const T* p = j < lines ? data + j * stride : zeros;
    const T* q = j + 4 < lines && j + 4 < Lanes ? data + (j + 4) * stride : zeros;
    load_pair(p, q, low[j], high[j]);
  }
  store_columns<Lanes>(low, out, width);
  store_columns<Lanes>(high, out + 4 * width, width);
}

// Packs all whole blocks of eight depths of up to eight lines. More lines would conflict in the L1 cache: lines of a
// matrix whose stride is a power of two map to the same set.
template <int Lanes, class T>
void pack_group(const T* data, std::int64_t stride, std::int64_t lines, std::int64_t depth, int width, float* out) {
  static constexpr T kZeros[8] = {};
  for (std::int64_t i = 0; i + 8 <= depth; i += 8) {
    pack_block<Lanes>(data + i, stride, lines, kZeros, width, out + i * width);
  }
}

// out[i * Width + j] = data[j * stride + i] for j < lines; 0 for lines <= j < Width.
template <int Width, class T>
void pack_lines(const T* data, std::int64_t stride, std::int64_t lines, std::int64_t depth, float* out) {
  constexpr int kRest = Width % 8;
  constexpr int kDone = Width - kRest;
  for (int j = 0; j < kDone; j += 8) pack_group<8>(data + j * stride, stride, lines - j, depth, Width, out + j);
  if constexpr (kRest > 0) {
    pack_group<kRest>(data + kDone * stride, stride, lines - kDone, depth, Width, out + kDone);
  }
  for (std::int64_t i = depth - depth % 8; i < depth; ++i) {
    for (int j = 0; j < Width; ++j) out[i * Width + j] = j < lines ? static_cast<float>(data[j * stride + i]) : 0.0F;
  }
}

template <int Width>
void pack_lines(const double* data, std::int64_t stride, std::int64_t lines, std::int64_t depth, double* out) {
  for (std::int64_t i = 0; i < depth; ++i) {
    for (std::int64_t j = 0; j < Width; ++j) out[i * Width + j] = j < lines ? data[j * stride + i] : 0.0;
  }
}

// Packs one depth: out[j] = row[j] for j < lines; 0 for lines <= j < Width.
template <int Width, class T>
void pack_step(const T* row, std::int64_t lines, float* out) {
  constexpr int kRest = Width % 8;
  if (lines >= Width + (8 - kRest) % 8) {  // reading whole vectors stays within the row
#pragma GCC unroll 4
    for (int j = 0; j + 8 <= Width; j += 8) store_lanes<8>(out + j, Lanes<float>::load(row + j));
    if constexpr (kRest > 0) store_lanes<kRest>(out + Width - kRest, Lanes<float>::load(row + Width - kRest));
    return;
  }
  for (int j = 0; j < Width; ++j) out[j] = j < lines ? static_cast<float>(row[j]) : 0.0F;
}

template <int Width>
void pack_step(const double* row, std::int64_t lines, double* out) {
  for (int j = 0; j < Width; ++j) out[j] = j < lines ? row[j] : 0.0;
}

template <int Width, class T, class Real>
void pack_panels(const PackSource& source, const PackRange& range, Real* out) {
  const T* data = static_cast<const T*>(source.data);
  const auto [first, lines, begin, depth] = range;
  if (!source.depth_major) {
    for (std::int64_t line = 0; line < lines; line += Width) {
      pack_lines<Width>(data + (first + line) * source.stride + begin, source.stride, lines - line, depth,
                        out + line * depth);
    }
    return;
  }
  // Pack a group of panels together: long enough reads of each row, but few cache lines written in turn.
  constexpr std::int64_t kGroup = std::int64_t{std::max(128 / Width, 1)} * Width;
  for (std::int64_t start = 0; start < lines; start += kGroup) {
    const std::int64_t end = std::min(start + kGroup, lines);
    for (std::int64_t i = 0; i < depth; ++i) {
      const T* row = data + (begin + i) * source.stride + first;
      for (std::int64_t line = start; line < end; line += Width) {
        pack_step<Width>(row + line, lines - line, out + line * depth + i * Width);
      }
    }
  }
}

template <int Width>
void pack_width(const PackSource& source, const PackRange& range, float* out) {
  if (source.dtype == DType::kF32) return pack_panels<Width, float>(source, range, out);
  if (source.dtype == DType::kU8) {
    return for_dequantized_parts(source, range, Width,
                                 [&](const auto& part, const auto& inside, auto line, auto depth) {
                                   pack_panels<Width, BFloat16>(part, inside, out + line * range.depth + depth * Width);
                                 });
  }
  HONE_ASSERT(source.dtype == DType::kBf16, name_of(source.dtype));
  pack_panels<Width, BFloat16>(source, range, out);
}

}  // namespace

PackSource DequantizedPart::fill(const PackSource& source, const PackRange& range) {
  HONE_ASSERT(!source.depth_major && range.lines <= kLines && range.depth <= kScaleBlock, range.lines, " ",
              range.depth);
  const auto* data = static_cast<const std::uint8_t*>(source.data);
  for (std::int64_t i = 0; i < range.lines; ++i) {
    const std::int64_t line = range.first + i;
    const std::uint8_t* row = data + line * source.stride;
    const float* scales = source.scales.data + line / source.scales.rows * source.scales.stride;
    // The part after this one, in lines too far apart for the processor.
    for (std::int64_t at = 0; at < kScaleBlock; at += 64) __builtin_prefetch(row + range.begin + kScaleBlock + at);
    dequantize_e4m3_row(row + range.begin, scales, range.begin, range.depth, values + i * kScaleBlock);
  }
  return {values, DType::kBf16, kScaleBlock, false};
}

void pack(const PackSource& source, const PackRange& range, int width, float* out) {
  switch (width) {
    case 6:
      return pack_width<6>(source, range, out);
    case 12:
      return pack_width<12>(source, range, out);
    case 16:
      return pack_width<16>(source, range, out);
    case 32:
      return pack_width<32>(source, range, out);
    default:
      HONE_ASSERT(false, "panels of width ", width);
  }
}

void pack(const PackSource& source, const PackRange& range, int width, double* out) {
  HONE_ASSERT(source.dtype == DType::kF64, name_of(source.dtype));
  HONE_ASSERT(width == 6 || width == 8, "panels of width ", width);
  width == 6 ? pack_panels<6, double>(source, range, out) : pack_panels<8, double>(source, range, out);
}

}  // namespace hone
