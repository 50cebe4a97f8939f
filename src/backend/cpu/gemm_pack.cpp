#include "backend/cpu/gemm_pack.h"

#include <immintrin.h>

#include <algorithm>

#include "core/error.h"

namespace hone {
namespace {

__m256 load8(const float* p) { return _mm256_loadu_ps(p); }
__m256 load8(const BFloat16* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// The first `count` lanes; count is 2, 4, 6 or 8.
void store_lanes(float* out, __m256 v, int count) {
  if (count == 8) return _mm256_storeu_ps(out, v);
  __m128 half = _mm256_castps256_ps128(v);
  if (count >= 4) {
    _mm_storeu_ps(out, half);
    half = _mm256_extractf128_ps(v, 1);
    out += 4;
  }
  if (count % 4 != 0) _mm_storel_pi(reinterpret_cast<__m64*>(out), half);
}

// Transposes an 8 by 8 block.
void transpose8(__m256 (&r)[8]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xEE);
    u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

// out[i * width + j] = data[j * stride + i] for j < lines; 0 for lines <= j < width.
template <class T>
void pack_lines(const T* data, std::int64_t stride, std::int64_t lines, std::int64_t depth, int width, float* out) {
  const std::int64_t whole = depth - depth % 8;
  for (std::int64_t i = 0; i < whole; i += 8) {
    for (int group = 0; group < width; group += 8) {
      const int lanes = std::min(width - group, 8);
      __m256 r[8];
      for (int j = 0; j < 8; ++j) {
        const bool present = j < lanes && group + j < lines;
        r[j] = present ? load8(data + (group + j) * stride + i) : _mm256_setzero_ps();
      }
      transpose8(r);
      for (int j = 0; j < 8; ++j) store_lanes(out + (i + j) * width + group, r[j], lanes);
    }
  }
  for (std::int64_t i = whole; i < depth; ++i) {
    for (int j = 0; j < width; ++j) {
      out[i * width + j] = j < lines ? static_cast<float>(data[j * stride + i]) : 0.0F;
    }
  }
}

template <class T>
void pack_lines(const T* data, std::int64_t stride, std::int64_t lines, std::int64_t depth, int width, double* out) {
  for (std::int64_t j = 0; j < width; ++j) {
    for (std::int64_t i = 0; i < depth; ++i) out[i * width + j] = j < lines ? data[j * stride + i] : 0.0;
  }
}

// One step of the chains: out[j] = row[j] for j < lines; 0 for lines <= j < width.
template <class T>
void pack_step(const T* row, std::int64_t lines, int width, float* out) {
  if (lines >= (width + 7) / 8 * 8) {  // whole vectors may be read
    for (int j = 0; j < width; j += 8) store_lanes(out + j, load8(row + j), std::min(width - j, 8));
    return;
  }
  for (int j = 0; j < width; ++j) out[j] = j < lines ? static_cast<float>(row[j]) : 0.0F;
}

void pack_step(const double* row, std::int64_t lines, int width, double* out) {
  for (int j = 0; j < width; ++j) out[j] = j < lines ? row[j] : 0.0;
}

template <class T, class Real>
void pack_typed(const PackSource& source, std::int64_t first, std::int64_t lines, std::int64_t begin,
                std::int64_t depth, int width, Real* out) {
  const T* data = static_cast<const T*>(source.data);
  if (!source.depth_major) {
    for (std::int64_t line = 0; line < lines; line += width) {
      pack_lines(data + (first + line) * source.stride + begin, source.stride, lines - line, depth, width,
                 out + line * depth);
    }
    return;
  }
  // Some panels at a time: long reads of each row, and few open lines of the copy.
  const std::int64_t group = std::max(128 / width, 1) * width;
  for (std::int64_t start = 0; start < lines; start += group) {
    const std::int64_t end = std::min(start + group, lines);
    for (std::int64_t i = 0; i < depth; ++i) {
      const T* row = data + (begin + i) * source.stride + first;
      for (std::int64_t line = start; line < end; line += width) {
        pack_step(row + line, lines - line, width, out + line * depth + i * width);
      }
    }
  }
}

}  // namespace

void pack(const PackSource& source, std::int64_t first, std::int64_t lines, std::int64_t begin, std::int64_t depth,
          int width, float* out) {
  if (source.dtype == DType::f32) return pack_typed<float>(source, first, lines, begin, depth, width, out);
  HONE_ASSERT(source.dtype == DType::bf16, name_of(source.dtype));
  pack_typed<BFloat16>(source, first, lines, begin, depth, width, out);
}

void pack(const PackSource& source, std::int64_t first, std::int64_t lines, std::int64_t begin, std::int64_t depth,
          int width, double* out) {
  HONE_ASSERT(source.dtype == DType::f64, name_of(source.dtype));
  pack_typed<double>(source, first, lines, begin, depth, width, out);
}

}  // namespace hone
