#include "model/transpose.h"

#include <algorithm>

namespace hone {

void transpose(std::span<const std::byte> from, std::int64_t rows, std::int64_t columns, std::size_t size,
               std::span<std::byte> to) {
  constexpr std::int64_t kTile = 64;
  const auto copy = [&]<class Word>() {
    const auto* source = reinterpret_cast<const Word*>(from.data());
    auto* target = reinterpret_cast<Word*>(to.data());
    for (std::int64_t tile = 0; tile < rows; tile += kTile) {
      const std::int64_t end = std::min(rows, tile + kTile);
      for (std::int64_t column = 0; column < columns; ++column) {
        for (std::int64_t row = tile; row < end; ++row) target[column * rows + row] = source[row * columns + column];
      }
    }
  };
  if (size == sizeof(std::uint8_t)) return copy.template operator()<std::uint8_t>();
  if (size == sizeof(std::uint16_t)) return copy.template operator()<std::uint16_t>();
  if (size == sizeof(std::uint32_t)) return copy.template operator()<std::uint32_t>();
  copy.template operator()<std::uint64_t>();
}

}  // namespace hone
