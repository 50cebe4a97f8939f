// Innermost loops and packing of gemm_bf16(). All of it requires AVX-512, and the kernels their instructions.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm_pack.h"
#include "core/dtype.h"

namespace hone {

inline constexpr std::int64_t kBf16Tile = 32;   // rows and columns of a tile of C
inline constexpr std::int64_t kBf16Block = 32;  // elements of k in a block

// A panel is 32 lines of an operand, in two halves of 16. For each block of k it has 1 KiB for each half: rows of a as
// [16 rows][32 elements], columns of b as [16 pairs of elements][16 columns][2].
inline constexpr std::int64_t kBf16Half = 16 * kBf16Block;
inline constexpr std::int64_t kBf16PanelBlock = 2 * kBf16Half;

// One tile of C over `blocks` blocks of k.
struct Bf16TileArgs {
  std::int64_t blocks;
  const BFloat16* a;     // a panel, or rows of a matrix in place
  std::int64_t a_row;    // elements from a row to the next
  std::int64_t a_half;   // ... from row 0 to row 16
  std::int64_t a_block;  // ... from a block of k to the next
  const BFloat16* b;     // a panel
  float* c;              // element (row, column) at c[row * ldc + column]
  std::int64_t ldc;
  bool load;      // sums continue from c, otherwise from 0
  bool one_half;  // only rows 0 to 15 are computed
};

struct Bf16Kernels {
  void (*begin)();  // prepares the calling thread
  void (*tile)(const Bf16TileArgs& args);
  void (*end)();
};

[[nodiscard]] Bf16Kernels bf16_kernels_avx512();
[[nodiscard]] Bf16Kernels bf16_kernels_amx();

enum class Bf16Layout : std::uint8_t { kRows, kPairs };  // of a and of b

// Packs a range of a bf16 matrix into panels, one after the other; missing lines and elements of k are 0.
void pack_bf16(const PackSource& source, const PackRange& range, Bf16Layout layout, BFloat16* out);

}  // namespace hone
