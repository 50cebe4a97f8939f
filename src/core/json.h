// JSON with the order of keys kept. This header is light; include <nlohmann/json.hpp> in the .cpp that uses the type.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace hone {

using Json = nlohmann::ordered_json;

// Throws Error naming `where`, the line and the column.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view where);
[[nodiscard]] Json read_json(const std::filesystem::path& path);
// Indented by two; written as write_file does.
void write_json(const std::filesystem::path& path, const Json& value);

}  // namespace hone
