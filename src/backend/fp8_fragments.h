// Where the bytes of FP8 weights (core/float8.h) are in the memory of a GPU: in the order in which a thread of a warp
// needs them as an operand of the tensor cores, so that it takes them by loads of 16 bytes and two bytes of a word
// become two bf16 by a mask (ops/fp8_linear/fp8_bits.cuh).
//
// Units: 8 rows by 128 columns, 1,024 bytes, which are one piece; those of the same rows follow each other. A multiple
// of 8 rows therefore takes the same range of bytes as row by row. A unit has 8 links of 16 columns, the step along k
// of wgmma and of mma.m16n8k16. Link l of row r is in four words, one for each thread q of a quad:
//
//   word(l, r, q) is at byte l / 4 * 512 + (4 r + q) * 16 + l % 4 * 4
//
//                half 1 of the word          half 0
//   columns      2 q + 1 and 2 q + 9         2 q and 2 q + 8        of the link
//
// Bits of a half, with the bits of the byte of the first column in capitals: S, four of exponent E, three of fraction
// M; those of the second column, eight columns further, in small letters:
//
//   bit   15  14 13 12  11  10  9  8  7   6  5  4   3  2  1  0
//          S   e  e  e   s   E  E  E  E   M  M  M   e  m  m  m
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/device.h"

namespace hone {

inline constexpr std::int64_t kFragmentRows = 8;       // of a unit
inline constexpr std::int64_t kFragmentColumns = 128;  // of a unit

// The bytes of the first and of the second columns in the two halves of a word, each as a bf16 of its number times
// 2^-120 (ops/fp8_linear/fp8_bits.cuh). constexpr for the kernels of GPUs, which call them.
[[nodiscard]] constexpr std::uint32_t spread_first(std::uint32_t word) { return word & 0x87F087F0U; }
[[nodiscard]] constexpr std::uint32_t spread_second(std::uint32_t word) {
  return ((word << 4) & 0x80F080F0U) | ((word >> 4) & 0x07000700U);
}

// Returns true if the bytes of a weight [rows, columns] with `scale_rows` rows for each row of scales are in this order
// on a device of this kind. Otherwise they are row by row.
[[nodiscard]] bool fp8_in_fragments(DeviceKind device, std::int64_t rows, std::int64_t columns,
                                    std::int64_t scale_rows);

// Writes rows of a weight [bytes.size() / columns, columns] in this order. Their number is a multiple of 8, `columns`
// one of 128, and both spans have the same size.
void fp8_to_fragments(std::span<const std::uint8_t> bytes, std::int64_t columns, std::span<std::uint8_t> fragments);

}  // namespace hone
