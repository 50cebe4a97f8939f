// The kernel of few_rows() with vectors of 512 bits, for the sources that instantiate it. As in gemm_tile.h, everything
// is in an unnamed namespace, and the sources define HONE_FEW_ROWS_TARGET.
//
//   a block: 64 bytes of each of 16 rows of b        the same transposed: word w of all 16 rows
//     row 0  | word 0 | word 1 | ... | word 15 |       words[0]  | row 0 | row 1 | ... | row 15 |
//     ...                                              ...
//     row 15 | word 0 | ...                            words[15] | row 0 | ...
//
// The sum of a row of a by 16 rows of b is a vector, to which words[0], words[1], ... are added in order, each times
// the broadcast factor of the row of a. A chain waits 4 to 6 cycles for each word and the transpose takes 64 shuffles;
// so the next block is transposed in eight steps between the products of this one, and the processor overlaps them.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "backend/cpu/few_rows_kernels.h"

// g++ 12 warns of its intrinsics, which use undefined vectors.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#define HONE_FEW_ROWS_INLINE HONE_FEW_ROWS_TARGET __attribute__((always_inline)) inline

namespace hone {
namespace {

constexpr int kLines = 16;  // of a panel
constexpr int kWords = 16;  // of a block
constexpr int kSteps = 8;   // of a transpose

// Transposes one block after the other.
class Transpose16 {
 public:
  HONE_FEW_ROWS_INLINE Transpose16(const std::byte* block, std::int64_t stride, const std::byte* next)
      : block_(block), stride_(stride), next_(next) {}
  HONE_FEW_ROWS_INLINE void advance() { block_ += kFewRowsBlock; }

  // Steps 0 to 3 each read four rows, and transpose their groups of 4 x 4 words; steps 4 to 7 each collect four words
  // of all rows from these.
  HONE_FEW_ROWS_INLINE void step(int s, __m512i* words) { s < 4 ? read(s) : collect(s - 4, words); }

 private:
  HONE_FEW_ROWS_INLINE void read(int group) {
    __m512i v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm512_loadu_si512(block_ + (4 * group + i) * stride_);
      __builtin_prefetch(next_, 0, 2);
      next_ += kFewRowsBlock;
    }
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    __m512i* to = groups_ + 4 * group;
    to[0] = _mm512_unpacklo_epi64(a, c);
    to[1] = _mm512_unpackhi_epi64(a, c);
    to[2] = _mm512_unpacklo_epi64(b, d);
    to[3] = _mm512_unpackhi_epi64(b, d);
  }
  HONE_FEW_ROWS_INLINE void collect(int j, __m512i* words) const {
    const __m512i a = _mm512_shuffle_i32x4(groups_[j], groups_[4 + j], 0x44);
    const __m512i b = _mm512_shuffle_i32x4(groups_[j], groups_[4 + j], 0xEE);
    const __m512i c = _mm512_shuffle_i32x4(groups_[8 + j], groups_[12 + j], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(groups_[8 + j], groups_[12 + j], 0xEE);
    words[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    words[4 + j] = _mm512_shuffle_i32x4(a, c, 0xDD);
    words[8 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    words[12 + j] = _mm512_shuffle_i32x4(b, d, 0xDD);
  }

  const std::byte* block_;
  std::int64_t stride_;
  const std::byte* next_;
  __m512i groups_[kLines];  // [4 * group + j]: in each 128 bits, word j of the group's four rows
};

// Products has the number of its factors of a word, and adds a word to the sums of all rows of a.
template <class Products, int Rows>
HONE_FEW_ROWS_TARGET void panel(const FewRowsPanel& args) {
  __m512 sums[Rows];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) sums[r] = _mm512_setzero_ps();
  __m512i words[2][kWords];
  Transpose16 transpose(args.b, args.stride, args.next);
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; ++s) transpose.step(s, words[0]);
  const float* factors = static_cast<const float*>(args.factors);
  for (std::int64_t block = 0; block < args.blocks; ++block) {
    const __m512i* now = words[block % 2];
    __m512i* then = words[(block + 1) % 2];
    if (block + 1 < args.blocks) transpose.advance();  // else the last block is transposed once more, for nothing
#pragma GCC unroll 8
    for (int s = 0; s < kSteps; ++s) {
      transpose.step(s, then);
#pragma GCC unroll 2
      for (int w = 2 * s; w < 2 * s + 2; ++w) {
        Products::template add<Rows>(sums, factors + w * Products::kFactors * Rows, _mm512_load_si512(now + w));
      }
      asm volatile("" ::: "memory");  // keeps the compiler from moving the transpose out of the products
    }
    factors += std::int64_t{kWords} * Products::kFactors * Rows;
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) _mm512_storeu_ps(args.sums + r * kLines, sums[r]);
}

// The kernels of 1, 2, ... rows: `r` counts from 0.
template <class Products, int... r>
FewRowsKernels make_few_rows_kernels(FewRowsProducts products, std::integer_sequence<int, r...>) {
  return {products, kLines, {panel<Products, r + 1>...}};
}

}  // namespace
}  // namespace hone
