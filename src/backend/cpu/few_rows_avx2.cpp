// The kernel of few_rows() with vectors of 256 bits. A panel is 32 rows of b, four vectors, whose chains the processor
// interleaves. 64 bytes of each row are transposed into the L1 cache and then multiplied; the sums are in memory
// between two blocks, since the registers hold those of up to two rows of a by 32 rows of b, or of six rows by 16.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "backend/cpu/few_rows_kernels.h"

#define HONE_FEW_ROWS_INLINE __attribute__((always_inline)) inline

namespace hone {
namespace {

constexpr int kLanes = 8;
constexpr int kVectors = 4;  // of a word of all rows of a panel
constexpr int kLines = kLanes * kVectors;
constexpr int kWords = 16;  // of a block

using Words = __m256i[kWords][kVectors];

HONE_FEW_ROWS_INLINE __m256 load_halves(const float* low, const float* high) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

// Transposes eight words, from word `first` on, of the eight rows of vector `v`.
HONE_FEW_ROWS_INLINE void transpose(const std::byte* block, std::int64_t stride, int first, int v, Words& words) {
  const auto row = [&](int i) { return reinterpret_cast<const float*>(block + (kLanes * v + i) * stride) + first; };
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {  // four words of all rows
    __m256 pair[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) pair[i] = load_halves(row(i) + 4 * half, row(i + 4) + 4 * half);
    const __m256 a = _mm256_unpacklo_ps(pair[0], pair[1]), b = _mm256_unpackhi_ps(pair[0], pair[1]);
    const __m256 c = _mm256_unpacklo_ps(pair[2], pair[3]), d = _mm256_unpackhi_ps(pair[2], pair[3]);
    __m256i(*to)[kVectors] = words + first + 4 * half;
    to[0][v] = _mm256_castps_si256(_mm256_shuffle_ps(a, c, 0x44));
    to[1][v] = _mm256_castps_si256(_mm256_shuffle_ps(a, c, 0xEE));
    to[2][v] = _mm256_castps_si256(_mm256_shuffle_ps(b, d, 0x44));
    to[3][v] = _mm256_castps_si256(_mm256_shuffle_ps(b, d, 0xEE));
  }
}

struct F32By8 {
  static constexpr int kFactors = 1;
  HONE_FEW_ROWS_INLINE static __m256 element(__m256i word, int) { return _mm256_castsi256_ps(word); }
};

// A bf16 is the upper half of an f32.
struct Bf16FmaBy8 {
  static constexpr int kFactors = 2;
  HONE_FEW_ROWS_INLINE static __m256 element(__m256i word, int i) {
    return _mm256_castsi256_ps(i == 0 ? _mm256_slli_epi32(word, 16)
                                      : _mm256_and_si256(word, _mm256_set1_epi32(-65536)));
  }
};

// Adds a block to the sums of `Count` of `Rows` rows of a, by `Width` vectors.
template <class Products, int Rows, int Count, int Width>
HONE_FEW_ROWS_INLINE void add_block(const float* factors, const Words& words, int vector, float* to) {
  __m256 sums[Count][Width];
#pragma GCC unroll 6
  for (int r = 0; r < Count; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Width; ++v) sums[r][v] = _mm256_load_ps(to + r * kLines + v * kLanes);
  }
#pragma GCC unroll 4
  for (int w = 0; w < kWords; ++w) {
#pragma GCC unroll 2
    for (int i = 0; i < Products::kFactors; ++i, factors += Rows) {
      __m256 elements[Width];
#pragma GCC unroll 4
      for (int v = 0; v < Width; ++v) elements[v] = Products::element(words[w][vector + v], i);
#pragma GCC unroll 6
      for (int r = 0; r < Count; ++r) {
        const __m256 x = _mm256_broadcast_ss(factors + r);
#pragma GCC unroll 4
        for (int v = 0; v < Width; ++v) sums[r][v] = _mm256_fmadd_ps(x, elements[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < Count; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Width; ++v) _mm256_store_ps(to + r * kLines + v * kLanes, sums[r][v]);
  }
}

// Adds a block to all sums: 12 of them at a time are in registers.
template <class Products, int Rows>
HONE_FEW_ROWS_INLINE void add_to_all(const float* factors, const Words& words, float* sums) {
  if constexpr (Rows <= 2) {
    add_block<Products, Rows, Rows, kVectors>(factors, words, 0, sums);
  } else {
    constexpr int kFirst = Rows <= 6 ? Rows : 4;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v += 2) {
      add_block<Products, Rows, kFirst, 2>(factors, words, v, sums + v * kLanes);
      if constexpr (Rows > kFirst) {
        add_block<Products, Rows, Rows - kFirst, 2>(factors + kFirst, words, v, sums + kFirst * kLines + v * kLanes);
      }
    }
  }
}

template <class Products, int Rows>
void panel(const FewRowsPanel& args) {
  Words words;
  std::fill_n(args.sums, Rows * kLines, 0.0F);
  const float* factors = static_cast<const float*>(args.factors);
  const std::byte* next = args.next;
  for (std::int64_t block = 0; block < args.blocks; ++block) {
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
      for (int i = 0; i < kLanes; ++i, next += kFewRowsBlock) __builtin_prefetch(next, 0, 2);
      transpose(args.b + block * kFewRowsBlock, args.stride, 0, v, words);
      transpose(args.b + block * kFewRowsBlock, args.stride, kWords / 2, v, words);
    }
    add_to_all<Products, Rows>(factors, words, args.sums);
    factors += std::int64_t{kWords} * Products::kFactors * Rows;
  }
}

// The kernels of 1, 2, ... rows: `r` counts from 0.
template <class Products, int... r>
FewRowsKernels make_kernels(FewRowsProducts products, std::integer_sequence<int, r...>) {
  return {products, kLines, {panel<Products, r + 1>...}};
}

}  // namespace

FewRowsKernels few_rows_kernels_avx2(FewRowsProducts products) {
  constexpr auto kRows = std::make_integer_sequence<int, kFewRowsGroup>();
  return products == FewRowsProducts::kF32 ? make_kernels<F32By8>(products, kRows)
                                           : make_kernels<Bf16FmaBy8>(products, kRows);
}

}  // namespace hone
