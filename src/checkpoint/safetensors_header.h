// The header of a safetensors file, as text.
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
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in the bytes behind the header
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;  // by begin
  std::map<std::string, std::string> metadata;
};

// Parses the JSON and checks it against `data_size`, the number of bytes behind it. Throws Error that begins with
// `where`.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_size,
                                                         std::string_view where);

// A name from a file, fit for an error's one line: quoted, without control characters, cut when very long.
[[nodiscard]] std::string quoted_name(std::string_view name);

}  // namespace hone
