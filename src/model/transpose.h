// Transposes matrices that checkpoints store in the opposite orientation of hone's blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hone {

// Writes the transpose of `from` [rows, columns] to `to` [columns, rows]; elements have `size` bytes (1, 2, 4 or 8).
void transpose(std::span<const std::byte> from, std::int64_t rows, std::int64_t columns, std::size_t size,
               std::span<std::byte> to);

}  // namespace hone
