#include "core/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/files.h"

namespace hone {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxValues = 100'000;

// Builds values from the events of yaml-cpp's parser. YAML::LoadAll is not used for two reasons: it returns an endless
// list of documents for a text that begins with a comma, and it gives no chance to bound the size of expanded aliases.
class Reader final : public YAML::EventHandler {
 public:
  explicit Reader(std::string_view where) : where_(where) {}

  YamlValue read(std::string_view text) {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(*this)) continue;
    return std::move(document_);
  }

  [[noreturn]] void fail(int line, std::string_view what) const { throw Error(text_of(where_, ":", line), what); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(begin(Kind::kNull, mark), anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string& text) override {
    YamlValue value = begin(Kind::kScalar, mark);
    value.scalar = text;
    add(std::move(value), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open_.push_back({.value = begin(Kind::kList, mark), .anchor = anchor});
  }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open_.push_back({.value = begin(Kind::kMap, mark), .anchor = anchor});
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto named = anchors_.find(anchor);
    if (named == anchors_.end()) fail(mark.line + 1, "a value holds itself");
    check_position(named->second.kind, mark.line + 1);
    count(named->second, static_cast<int>(open_.size()), mark.line + 1);
    add(named->second, 0);
  }

 private:
  using Kind = YamlValue::Kind;
  // List or map that is being read. In a map, `value.keys` has one entry more than `value.items` after a key.
  struct Open {
    YamlValue value;
    YAML::anchor_t anchor = 0;
    std::unordered_set<std::string> keys = {};
    int key_line = 0;

    [[nodiscard]] bool expects_key() const {
      return value.kind == Kind::kMap && value.keys.size() == value.items.size();
    }
  };

  // Checks that a value of this kind may start here: a text has one document, and keys are scalars.
  void check_position(Kind kind, int line) const {
    if (open_.empty() && done_) fail(line, "a second document starts here, one is expected");
    if (!open_.empty() && open_.back().expects_key() && kind != Kind::kScalar) fail(line, "a key must be a plain word");
  }

  YamlValue begin(Kind kind, const YAML::Mark& mark) {
    YamlValue value{.kind = kind, .line = mark.line + 1};
    check_position(kind, value.line);
    count(value, static_cast<int>(open_.size()), value.line);
    return value;
  }

  // Counts a value at nesting level `depth` and all values in it against the limits.
  void count(const YamlValue& value, int depth, int line) {
    if (depth > kMaxDepth) fail(line, text_of("nested deeper than ", kMaxDepth, " levels"));
    if (++count_ > kMaxValues) fail(line, text_of("more than ", kMaxValues, " values"));
    for (const YamlValue& item : value.items) count(item, depth + 1, line);
  }

  void close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    HONE_ASSERT(closed.value.kind != Kind::kMap || closed.expects_key(), "a key without a value");
    add(std::move(closed.value), closed.anchor);
  }

  void add(YamlValue value, YAML::anchor_t anchor) {
    if (anchor != 0) {
      count(value, 0, value.line);
      anchors_[anchor] = value;
    }
    if (open_.empty()) {
      document_ = std::move(value);
      done_ = true;
      return;
    }
    Open& outer = open_.back();
    if (outer.expects_key()) {
      if (!outer.keys.insert(value.scalar).second) {
        fail(value.line, text_of("the key ", shown(value.scalar), " is given twice"));
      }
      outer.key_line = value.line;
      outer.value.keys.push_back(std::move(value.scalar));
      return;
    }
    if (outer.value.kind == Kind::kMap) value.line = outer.key_line;
    outer.value.items.push_back(std::move(value));
  }

  std::string_view where_;
  YamlValue document_;
  bool done_ = false;
  std::vector<Open> open_;
  std::unordered_map<YAML::anchor_t, YamlValue> anchors_;
  int count_ = 0;
};

bool is_plain(std::string_view text) {
  constexpr std::array<std::string_view, 4> kNull{"null", "Null", "NULL", "~"};
  if (text.empty() || yaml_boolean(text) || std::ranges::find(kNull, text) != kNull.end()) return false;
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
  };
  // Only text that starts with a letter or a slash stays plain: readers disagree on which other scalars are numbers.
  return std::ranges::all_of(text, allowed) &&
         (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '/');
}

void append_value(const YamlValue& value, std::string& text) {
  constexpr std::size_t kEnough = 80;
  if (text.size() > kEnough) return;
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      text += "null";
      break;
    case YamlValue::Kind::kScalar:
      text += value.scalar;
      break;
    case YamlValue::Kind::kList:
    case YamlValue::Kind::kMap: {
      const bool map = value.kind == YamlValue::Kind::kMap;
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

// Replaces control characters and truncates the text to kLongest bytes, at the start of a UTF-8 character.
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
    return reader.read(text);
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
  if (value.kind == YamlValue::Kind::kScalar) return shown(value.scalar);
  std::string text;
  append_value(value, text);
  return one_line(text);
}

}  // namespace hone
