// Innermost loops of gemm() and attention, which hold a tile of C in registers, for each vector instruction set.
#pragma once

#include <cstdint>

namespace hone {

inline constexpr int kMaxTileRows = 12;
inline constexpr int kMaxTileColumns = 32;

// One tile of C over `depth` elements of k. Each element continues its fma chain from c if `load`, otherwise from 0.
template <class Real>
struct TileArgs {
  std::int64_t depth;
  const Real* a;  // rows of a panel, see TileKernels
  std::int64_t lda;
  const Real* b;  // element (i, column) at b[i * ldb + column]
  std::int64_t ldb;
  Real* c;  // element (row, column) at c[row * ldc + column]
  std::int64_t ldc;
  bool load;
  const Real* next = nullptr;  // tile of C that is fetched into the cache meanwhile, as c; null: none
};

// Tables of kernels: kernel[r - 1] computes r rows by `columns` columns of C. Element (row, i) of a is at
// a[i * lda + row] for `depth_major`, which packed panels are, with lda = rows, and at a[row * lda + i] for
// `row_major`.
template <class Real>
struct TileKernels {
  using Kernel = void (*)(const TileArgs<Real>& args);
  int rows;
  int columns;
  Kernel depth_major[kMaxTileRows];
  Kernel row_major[kMaxTileRows];
};

// Returns the kernels for this machine.
template <class Real>
[[nodiscard]] const TileKernels<Real>& tile_kernels();
template <>
const TileKernels<float>& tile_kernels<float>();
template <>
const TileKernels<double>& tile_kernels<double>();

[[nodiscard]] TileKernels<float> tile_kernels_avx2();
[[nodiscard]] TileKernels<double> tile_kernels_avx2_f64();
[[nodiscard]] TileKernels<float> tile_kernels_avx512();  // requires a machine with AVX-512F

}  // namespace hone
