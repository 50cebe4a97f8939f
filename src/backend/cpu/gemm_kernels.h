// Innermost loops of gemm(), which hold a tile of C in registers, for each vector instruction set.
#pragma once

#include <cstdint>

namespace hone {

inline constexpr int kMaxTileRows = 12;
inline constexpr int kMaxTileColumns = 32;

// Table of kernels. kernel[r - 1](k, a, b, c, ldc, load) computes r rows by `columns` columns of C from a panel
// a[k][rows] and a panel b[k][columns]. Each element continues its fma chain from c if `load`, otherwise from 0.
template <class Real>
struct TileKernels {
  using Kernel = void (*)(std::int64_t k, const Real* a, const Real* b, Real* c, std::int64_t ldc, bool load);
  int rows;
  int columns;
  Kernel kernel[kMaxTileRows];
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
