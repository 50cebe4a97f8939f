#define HONE_FEW_ROWS_TARGET __attribute__((target("avx512f")))
#include "backend/cpu/few_rows_avx512.h"

namespace hone {
namespace {

template <int Rows>
HONE_FEW_ROWS_INLINE void add_element(__m512 (&sums)[Rows], const float* factors, __m512i element) {
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    sums[r] = _mm512_fmadd_ps(_mm512_set1_ps(factors[r]), _mm512_castsi512_ps(element), sums[r]);
  }
}

struct F32By16 {
  static constexpr int kFactors = 1;
  template <int Rows>
  HONE_FEW_ROWS_INLINE static void add(__m512 (&sums)[Rows], const float* factors, __m512i word) {
    add_element<Rows>(sums, factors, word);
  }
};

// A bf16 is the upper half of an f32.
struct Bf16FmaBy16 {
  static constexpr int kFactors = 2;
  template <int Rows>
  HONE_FEW_ROWS_INLINE static void add(__m512 (&sums)[Rows], const float* factors, __m512i word) {
    add_element<Rows>(sums, factors, _mm512_slli_epi32(word, 16));
    add_element<Rows>(sums, factors + Rows, _mm512_and_si512(word, _mm512_set1_epi32(-65536)));
  }
};

}  // namespace

FewRowsKernels few_rows_kernels_avx512(FewRowsProducts products) {
  constexpr auto kRows = std::make_integer_sequence<int, kFewRowsGroup>();
  return products == FewRowsProducts::kF32 ? make_few_rows_kernels<F32By16>(products, kRows)
                                           : make_few_rows_kernels<Bf16FmaBy16>(products, kRows);
}

}  // namespace hone
