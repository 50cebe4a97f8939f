// JSON with the order of keys kept. This header is light; include <nlohmann/json.hpp> in the .cpp that uses the type.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace hone {

using Json = nlohmann::ordered_json;

// Arrays and objects within each other; what reads a value recurses.
inline constexpr int kDeepestJson = 256;
// Whether the text, valid or not, opens more of them.
[[nodiscard]] bool is_too_deep_json(std::string_view text);

// Throws Error naming `where`, the line and the column, also where the text is nested deeper than kDeepestJson.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view where);
[[nodiscard]] Json read_json(const std::filesystem::path& path);
// Indented by two; written as write_file does.
void write_json(const std::filesystem::path& path, const Json& value);

}  // namespace hone
