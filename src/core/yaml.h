// Reads YAML and JSON documents into plain values that keep their line numbers. The parser is yaml-cpp, which only
// yaml.cpp includes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct YamlValue {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string scalar;             // as written, without quotes
  std::vector<std::string> keys;  // maps only: keys[i] names items[i]; no key occurs twice
  std::vector<YamlValue> items;   // lists and maps
  int line = 0;                   // counted from 1; 0 if the value is not from a file

  [[nodiscard]] const YamlValue* find(std::string_view key) const;  // value of a map's key; nullptr if it is missing
};

// Parses one document; an empty one gives a null value. Throws Error "WHERE:LINE: ..." if the text is not valid YAML,
// has a second document, a repeated key or a key that is not a scalar, is nested deeper than 64 levels, or has more
// than 100,000 values after its aliases are expanded.
[[nodiscard]] YamlValue parse_yaml(std::string_view text, std::string_view where);
[[nodiscard]] YamlValue read_yaml(const std::filesystem::path& path);

// Parses a boolean of YAML 1.1 (yes, no, true, false, on, off, y, n, in any case); nullopt for any other text.
[[nodiscard]] std::optional<bool> yaml_boolean(std::string_view text);
// Writes a string as a YAML scalar: plain if YAML reads it back as the same string, otherwise in double quotes.
[[nodiscard]] std::string yaml_quoted(std::string_view text);
// Formats a value on one line for a message: `[a, b]`, `{k: v}`, `'text'`. Long values are truncated.
[[nodiscard]] std::string shown(const YamlValue& value);
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace hone
