// Matrices of checkpoints that hold the other way round what a block holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hone {

// to [columns, rows] = the transpose of from [rows, columns], elements of `size` bytes (2, 4 or 8).
void transpose(std::span<const std::byte> from, std::int64_t rows, std::int64_t columns, std::size_t size,
               std::span<std::byte> to);

}  // namespace hone
