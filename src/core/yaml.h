// YAML and JSON documents as plain values that remember the line they came from. yaml-cpp stays behind this header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct YamlValue {
  enum class Kind : std::uint8_t { null, scalar, list, map };

  Kind kind = Kind::null;
  std::string scalar;             // as written, without quotes
  std::vector<std::string> keys;  // of a map: keys[i] names items[i]; no key occurs twice
  std::vector<YamlValue> items;   // of a list or a map
  int line = 0;                   // from 1; 0 where the value is not from a file

  [[nodiscard]] const YamlValue* find(std::string_view key) const;  // of a map; nullptr where it has no such key
};

// One document; an empty one is null. Throws Error "WHERE:LINE: ..." where the text is no YAML, where a key is repeated
// or no scalar, and where the document is deeper than 64 or, with its aliases expanded, larger than 100,000 values.
[[nodiscard]] YamlValue parse_yaml(std::string_view text, std::string_view where);
[[nodiscard]] YamlValue read_yaml(const std::filesystem::path& path);

// The booleans of YAML 1.1 (yes, no, true, false, on, off, y, n), in any case.
[[nodiscard]] std::optional<bool> yaml_boolean(std::string_view text);
// A plain scalar where YAML reads it back as the same string, else one in double quotes.
[[nodiscard]] std::string yaml_quoted(std::string_view text);
// A value on one line, as a message shows it: `[a, b]`, `{k: v}`, `'text'`; long ones are cut.
[[nodiscard]] std::string shown(const YamlValue& value);
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace hone
