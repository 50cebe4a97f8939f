// FP8 weights in the order of fragments (backend/fp8_fragments.h), read as a thread of a kernel reads them.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "backend/fp8_fragments.h"

namespace hone::test {

// The word of a thread of a quad, for a row of the weight and 16 columns from 16 `link` on.
inline std::uint32_t fragment_word(std::span<const std::uint8_t> fragments, std::int64_t columns, std::int64_t row,
                                   std::int64_t link, std::int64_t thread) {
  const std::int64_t unit = row / 8 * (columns / 128) + link / 8;
  const std::int64_t at = unit * 1024 + link % 8 / 4 * 512 + (row % 8 * 4 + thread) * 16 + link % 4 * 4;
  std::uint32_t word;
  std::memcpy(&word, fragments.data() + at, sizeof(word));
  return word;
}

// The bytes row by row.
inline std::vector<std::uint8_t> rows_of_fragments(std::span<const std::uint8_t> fragments, std::int64_t columns) {
  std::vector<std::uint8_t> bytes(fragments.size());
  const auto byte_of = [](std::uint32_t half) {
    return static_cast<std::uint8_t>((half >> 8 & 0x80) | (half >> 4 & 0x7F));
  };
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(bytes.size()) / columns; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::uint32_t word = fragment_word(fragments, columns, row, column / 16, column % 8 / 2);
      const std::uint32_t spread = column % 16 < 8 ? spread_first(word) : spread_second(word);
      bytes[static_cast<std::size_t>(row * columns + column)] = byte_of(spread >> (column % 2 * 16) & 0xFFFF);
    }
  }
  return bytes;
}

}  // namespace hone::test
