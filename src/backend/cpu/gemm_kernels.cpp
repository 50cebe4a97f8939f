#include "backend/cpu/gemm_kernels.h"

namespace hone {

template <>
const TileKernels<float>& tile_kernels<float>() {
  static const TileKernels<float> kernels =
      __builtin_cpu_supports("avx512f") ? tile_kernels_avx512() : tile_kernels_avx2();
  return kernels;
}

template <>
const TileKernels<double>& tile_kernels<double>() {
  static const TileKernels<double> kernels = tile_kernels_avx2_f64();
  return kernels;
}

}  // namespace hone
