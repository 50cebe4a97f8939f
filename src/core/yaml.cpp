#include "core/yaml.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <unordered_set>

#include "core/error.h"
#include "core/files.h"

namespace hone {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxValues = 100'000;

class Reader {
 public:
  explicit Reader(std::string_view where) : where_(where) {}

  YamlValue read(const YAML::Node& node, int depth) {
    YamlValue value;
    value.line = node.Mark().line + 1;
    if (depth > kMaxDepth) fail(value.line, text_of("nested deeper than ", kMaxDepth, " levels"));
    if (++count_ > kMaxValues) fail(value.line, text_of("more than ", kMaxValues, " values"));
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        break;
      case YAML::NodeType::Scalar:
        value.kind = YamlValue::Kind::scalar;
        value.scalar = node.Scalar();
        break;
      case YAML::NodeType::Sequence:
        value.kind = YamlValue::Kind::list;
        for (const YAML::Node& item : node) value.items.push_back(read(item, depth + 1));
        break;
      case YAML::NodeType::Map:
        read_map(node, depth, value);
        break;
    }
    return value;
  }

  [[noreturn]] void fail(int line, std::string_view what) const { throw Error(text_of(where_, ":", line), what); }

 private:
  void read_map(const YAML::Node& node, int depth, YamlValue& value) {
    value.kind = YamlValue::Kind::map;
    std::unordered_set<std::string> seen;
    for (const auto& entry : node) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar()) fail(line, "a key must be a plain word");
      const std::string& key = entry.first.Scalar();
      if (!seen.insert(key).second) fail(line, text_of("the key ", shown(key), " is given twice"));
      value.items.push_back(read(entry.second, depth + 1));
      value.items.back().line = line;
      value.keys.push_back(key);
    }
  }

  std::string_view where_;
  int count_ = 0;
};

bool is_plain(std::string_view text) {
  if (text.empty() || yaml_boolean(text) || text == "null" || text == "~") return false;
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
  };
  // What starts like a number is quoted: nothing then depends on how a reader resolves it.
  return std::ranges::all_of(text, allowed) &&
         (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '/');
}

void append_value(const YamlValue& value, std::string& text) {
  constexpr std::size_t kEnough = 80;
  if (text.size() > kEnough) return;
  switch (value.kind) {
    case YamlValue::Kind::null:
      text += "null";
      break;
    case YamlValue::Kind::scalar:
      text += value.scalar;
      break;
    case YamlValue::Kind::list:
    case YamlValue::Kind::map: {
      const bool map = value.kind == YamlValue::Kind::map;
      text += map ? "{" : "[";
      for (std::size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) text += ", ";
        if (map) text += value.keys[i] + ": ";
        append_value(value.items[i], text);
      }
      text += map ? "}" : "]";
    }
  }
}

// Control characters escaped, and cut to a length that leaves the message readable.
std::string one_line(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string line;
  for (const char c : text.substr(0, kLongest)) {
    if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      line += '?';
    } else {
      line += c;
    }
  }
  if (text.size() > kLongest) {
    while (!line.empty() && (static_cast<unsigned char>(line.back()) & 0xC0u) == 0x80u) line.pop_back();
    if (!line.empty() && static_cast<unsigned char>(line.back()) >= 0xC0u) line.pop_back();
    line += "...";
  }
  return line;
}

}  // namespace

const YamlValue* YamlValue::find(std::string_view key) const {
  const auto at = std::ranges::find(keys, key);
  return at == keys.end() ? nullptr : &items[static_cast<std::size_t>(at - keys.begin())];
}

YamlValue parse_yaml(std::string_view text, std::string_view where) {
  Reader reader(where);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.empty()) return {};
    if (documents.size() > 1) {
      reader.fail(documents[1].Mark().line + 1, "a second document starts here, one is expected");
    }
    return reader.read(documents[0], 0);
  } catch (const YAML::Exception& error) {
    reader.fail(std::max(error.mark.line, 0) + 1, text_of("not valid YAML: ", error.msg));
  }
}

YamlValue read_yaml(const std::filesystem::path& path) { return parse_yaml(read_file(path), path.string()); }

std::optional<bool> yaml_boolean(std::string_view text) {
  constexpr std::array<std::string_view, 4> kTrue{"yes", "true", "on", "y"};
  constexpr std::array<std::string_view, 4> kFalse{"no", "false", "off", "n"};
  std::string lower;
  for (const char c : text.substr(0, 6)) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (std::ranges::find(kTrue, lower) != kTrue.end()) return true;
  if (std::ranges::find(kFalse, lower) != kFalse.end()) return false;
  return std::nullopt;
}

std::string yaml_quoted(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (code < 0x20 || code == 0x7F) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\x%02X", code);
      quoted += escape.data();
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string shown(std::string_view text) { return "'" + one_line(text) + "'"; }

std::string shown(const YamlValue& value) {
  if (value.kind == YamlValue::Kind::scalar) return shown(value.scalar);
  std::string text;
  append_value(value, text);
  return one_line(text);
}

}  // namespace hone
