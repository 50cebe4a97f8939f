// Parses, reads and writes JSON whose objects keep the order of their keys. This header only declares the type;
// a .cpp that uses its members includes core/json_value.h.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace hone {

using Json = nlohmann::ordered_json;

// Maximum nesting depth of arrays and objects. The code that walks a value recurses, so the depth bounds its stack.
inline constexpr int kMaxJsonDepth = 256;
// Returns true if the text, valid JSON or not, nests arrays and objects deeper than kMaxJsonDepth.
[[nodiscard]] bool is_too_deep_json(std::string_view text);

// Parses one JSON text. Throws Error if it is not valid, with `where`, the line and the column, or if it is nested
// deeper than kMaxJsonDepth.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view where);
// Reads and parses a file; `where` is its path.
[[nodiscard]] Json read_json(const std::filesystem::path& path);
// Writes the value with an indentation of two blanks, atomically as write_file does.
void write_json(const std::filesystem::path& path, const Json& value);

}  // namespace hone
