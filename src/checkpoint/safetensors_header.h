// Parses and validates the JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace hone {

struct HeaderEntry {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // first byte, counted from the end of the header
  std::uint64_t end = 0;    // one past the last byte
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;  // ordered by begin
  std::map<std::string, std::string> metadata;
};

// Parses the header and checks that the tensors exactly cover `data_size`, the number of bytes after the header. Throws
// Error, located at `where`.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_size,
                                                         std::string_view where);

// Formats a name from a file for a one-line error message: quoted, without control characters, cut to 120 bytes.
[[nodiscard]] std::string quoted_name(std::string_view name);

}  // namespace hone
