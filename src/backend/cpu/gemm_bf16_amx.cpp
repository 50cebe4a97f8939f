#include <immintrin.h>

#include "backend/cpu/gemm_bf16_kernels.h"

#define HONE_AMX __attribute__((target("amx-tile,amx-bf16")))

namespace hone {
namespace {

// Layout of LDTILECFG's operand.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

HONE_AMX void begin() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}

HONE_AMX void end() { _tile_release(); }

// Registers: sums in 0 and 1 (rows 0 to 15), 2 and 3 (rows 16 to 31); halves of a in 4 and 5, of b in 6 and 7.
template <bool OneHalf>
HONE_AMX void compute(const Bf16TileArgs& args) {
  const auto c_stride = static_cast<std::size_t>(args.ldc) * sizeof(float);
  const auto a_stride = static_cast<std::size_t>(args.a_row) * sizeof(BFloat16);
  float* const lower = args.c + 16 * args.ldc;
  if (args.load) {
    _tile_loadd(0, args.c, c_stride);
    _tile_loadd(1, args.c + 16, c_stride);
    if constexpr (!OneHalf) {
      _tile_loadd(2, lower, c_stride);
      _tile_loadd(3, lower + 16, c_stride);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (!OneHalf) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  const BFloat16* a = args.a;
  const BFloat16* b = args.b;
  for (std::int64_t block = 0; block < args.blocks; ++block, a += args.a_block, b += kBf16PanelBlock) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, a, a_stride);
    _tile_loadd(7, b + kBf16Half, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (!OneHalf) {
      _tile_loadd(5, a + args.a_half, a_stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, args.c, c_stride);
  _tile_stored(1, args.c + 16, c_stride);
  if constexpr (!OneHalf) {
    _tile_stored(2, lower, c_stride);
    _tile_stored(3, lower + 16, c_stride);
  }
}

void tile(const Bf16TileArgs& args) { args.one_half ? compute<true>(args) : compute<false>(args); }

}  // namespace

Bf16Kernels bf16_kernels_amx() { return {begin, tile, end}; }

}  // namespace hone
