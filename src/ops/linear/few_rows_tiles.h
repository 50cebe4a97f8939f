// The tiles into which few_rows_cuda.cu divides a GEMM: as many rows of W and tokens as a block multiplies at a time.
#pragma once

#include <cstdint>
#include <utility>

namespace hone {

inline constexpr std::int64_t kFewRows = 512;  // most tokens of such a GEMM

struct FewRowsTile {
  int rows;    // of each matrix, a multiple of 8
  int tokens;  // 8, 16 or 32: the columns of wgmma, up to 64 rows of W; 64 or 128: its rows
};

// Groups of 8 rows of a matrix that a tile of 64 tokens may have, and from kLeastWideGroups on one of 128 tokens.
using FewRowsTileGroups = std::integer_sequence<int, 2, 3, 4, 5, 6, 7, 8, 12, 14, 18, 24, 28>;

inline constexpr int kLeastWideGroups = 4;
inline constexpr int kMostTileRows = 28 * 8;  // of all matrices

// Returns true if these tiles multiply m tokens with W [n, k] faster than the library does. Beyond 128 tokens that is
// so only where its tiles leave SMs without work.
[[nodiscard]] bool few_rows_pay(std::int64_t m, std::int64_t n, std::int64_t k);

// Returns the tile with which the busiest SM is done first, for m tokens and matrices of n rows. It has the same rows
// of each matrix (gate and up are two, with one result). No bit of a result depends on it.
[[nodiscard]] FewRowsTile few_rows_tile(std::int64_t m, std::int64_t n, int sm_count, int matrices = 1);

}  // namespace hone
