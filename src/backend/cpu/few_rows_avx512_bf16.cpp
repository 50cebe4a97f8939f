#include <cstring>

#define HONE_FEW_ROWS_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#include "backend/cpu/few_rows_avx512.h"

namespace hone {
namespace {

struct Bf16Pairs {
  static constexpr int kFactors = 1;
  template <int Rows>
  HONE_FEW_ROWS_INLINE static void add(__m512 (&sums)[Rows], const float* factors, __m512i word) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      std::int32_t pair;
      std::memcpy(&pair, factors + r, sizeof pair);
      const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      sums[r] = _mm512_dpbf16_ps(sums[r], x, reinterpret_cast<__m512bh>(word));
    }
  }
};

}  // namespace

FewRowsKernels few_rows_kernels_avx512_bf16() {
  return make_few_rows_kernels<Bf16Pairs>(FewRowsProducts::kBf16Pairs,
                                          std::make_integer_sequence<int, kFewRowsGroup>());
}

}  // namespace hone
