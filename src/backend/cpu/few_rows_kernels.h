// Innermost loops of few_rows(): sums of a few rows of a by a panel of rows of b, which are read in place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hone {

inline constexpr int kFewRowsGroup = 8;                // most rows of a that a kernel computes
inline constexpr std::int64_t kFewRowsBlock = 64;      // bytes of a row of b that are transposed together
inline constexpr std::int64_t kFewRowsMostLines = 32;  // most rows of b in a panel

// The multiplication of a word, 32 bits of a row of b. The factors are the elements of a, one or two for each word.
enum class FewRowsProducts : std::uint8_t {
  kF32,        // an element of f32; a factor in f32
  kBf16Fma,    // two elements of bf16, one fma after the other; two factors in f32
  kBf16Pairs,  // two elements of bf16 by one instruction of AVX512_BF16; a factor of two elements in bf16
};

// One panel: the sums of all its rows of b over all of k.
struct FewRowsPanel {
  const void* factors;    // [k][rows of a] in f32, or [k / 2][rows of a] pairs of bf16
  const std::byte* b;     // first row of b
  std::int64_t stride;    // bytes from a row of b to the next
  std::int64_t blocks;    // blocks of a row
  const std::byte* next;  // as many bytes as the panel has, which are fetched into the L2 cache meanwhile
  float* sums;            // [rows of a][rows of b]
};

// kernels.panel[r - 1] computes r rows of a by `lines` rows of b.
struct FewRowsKernels {
  using Kernel = void (*)(const FewRowsPanel& args);
  FewRowsProducts products;
  std::int64_t lines;
  Kernel panel[kFewRowsGroup];
};

[[nodiscard]] FewRowsKernels few_rows_kernels_avx2(FewRowsProducts products);    // all but kBf16Pairs
[[nodiscard]] FewRowsKernels few_rows_kernels_avx512(FewRowsProducts products);  // likewise; requires AVX-512F
[[nodiscard]] FewRowsKernels few_rows_kernels_avx512_bf16();                     // kBf16Pairs; requires AVX512_BF16

}  // namespace hone
