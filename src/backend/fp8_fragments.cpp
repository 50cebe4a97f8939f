#include "backend/fp8_fragments.h"

#include <cstring>

#include "core/error.h"
#include "core/parallel.h"

namespace hone {
namespace {

constexpr std::int64_t kLink = 16;      // columns
constexpr std::int64_t kLinkWords = 4;  // of a row
constexpr std::int64_t kUnitBytes = kFragmentRows * kFragmentColumns;

// The half of a word that has these two bytes.
constexpr std::uint16_t interleaved(std::uint32_t first, std::uint32_t second) {
  return static_cast<std::uint16_t>((first & 0x80) << 8 | (first & 0x7F) << 4 | (second & 0x70) << 8 |
                                    (second & 0x80) << 4 | (second & 0x0F));
}

// Writes one link of a row to the four words of its threads, which are 16 bytes apart.
void write_link(const std::uint8_t* from, std::uint8_t* to) {
  std::uint16_t halves[2 * kLinkWords];
  for (std::int64_t i = 0; i < 2 * kLinkWords; ++i) halves[i] = interleaved(from[i], from[i + kLink / 2]);
  for (std::int64_t q = 0; q < kLinkWords; ++q) std::memcpy(to + q * 16, halves + 2 * q, 4);
}

void write_unit(const std::uint8_t* from, std::int64_t columns, std::uint8_t* to) {
  for (std::int64_t row = 0; row < kFragmentRows; ++row) {
    for (std::int64_t link = 0; link < kFragmentColumns / kLink; ++link) {
      write_link(from + row * columns + link * kLink,
                 to + link / 4 * (kUnitBytes / 2) + row * kLinkWords * 16 + link % 4 * 4);
    }
  }
}

}  // namespace

bool fp8_in_fragments(DeviceKind device, std::int64_t rows, std::int64_t columns, std::int64_t scale_rows) {
  return device == DeviceKind::kCuda && rows % kFragmentRows == 0 && columns % kFragmentColumns == 0 &&
         scale_rows % kFragmentRows == 0;
}

void fp8_to_fragments(std::span<const std::uint8_t> bytes, std::int64_t columns, std::span<std::uint8_t> fragments) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  HONE_ASSERT(
      fragments.size() == bytes.size() && columns % kFragmentColumns == 0 && size % (kFragmentRows * columns) == 0,
      size, " bytes in rows of ", columns, " to ", fragments.size());
  const std::int64_t across = columns / kFragmentColumns;
  parallel_for(size / kUnitBytes, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      write_unit(bytes.data() + unit / across * kFragmentRows * columns + unit % across * kFragmentColumns, columns,
                 fragments.data() + unit * kUnitBytes);
    }
  });
}

}  // namespace hone
