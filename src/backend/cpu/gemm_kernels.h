// The innermost loops of gemm(): a tile of C in registers.
#pragma once

#include <cstdint>

namespace hone {

inline constexpr int kMaxTileRows = 12;
inline constexpr int kMaxTileColumns = 32;

// kernel[r - 1](k, a, b, c, ldc, load) computes r rows by `columns` columns of C from a panel a[k][rows] and a panel
// b[k][columns]: each element continues its chain from c if `load`, and starts at 0 if not.
template <class Real>
struct TileKernels {
  using Kernel = void (*)(std::int64_t k, const Real* a, const Real* b, Real* c, std::int64_t ldc, bool load);
  int rows;
  int columns;
  Kernel kernel[kMaxTileRows];
};

// Those of this machine.
template <class Real>
[[nodiscard]] const TileKernels<Real>& tile_kernels();
template <>
const TileKernels<float>& tile_kernels<float>();
template <>
const TileKernels<double>& tile_kernels<double>();

[[nodiscard]] TileKernels<float> tile_kernels_avx2();
[[nodiscard]] TileKernels<double> tile_kernels_avx2_f64();
[[nodiscard]] TileKernels<float> tile_kernels_avx512();  // only where the machine has AVX-512F

}  // namespace hone
