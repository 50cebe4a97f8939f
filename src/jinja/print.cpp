// Python's str(), repr() and json.dumps() of template values.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/error.h"
#include "core/unicode.h"
#include "jinja/value.h"

namespace hone {
namespace {

// Python's repr of a float: the shortest digits that read back exactly, with an exponent below 1e-4 and from 1e16.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  const double size = std::fabs(value);
  const bool scientific = size != 0.0 && (size < 1e-4 || size >= 1e16);
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
  std::string text(buffer.data(), end);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string hex_escape(const char* format, char32_t c) {
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, static_cast<unsigned>(c));
  return buffer.data();
}

std::string string_repr(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = decode_utf8(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (properties_of(c).printable()) {
      out.append(text, at, size);
    } else {
      out += hex_escape(c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
    at += size;
  }
  return out + quote;
}

std::string json_string(const std::string& text, bool ensure_ascii) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = decode_utf8(text, at);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (ensure_ascii && c >= 0x10000) {
          out += hex_escape("\\u%04x", 0xD800 + ((c - 0x10000) >> 10));
          out += hex_escape("\\u%04x", 0xDC00 + ((c - 0x10000) & 0x3FF));
        } else if (c < 0x20 || (ensure_ascii && c >= 0x80)) {
          out += hex_escape("\\u%04x", c);
        } else {
          out.append(text, at, size);
        }
    }
    at += size;
  }
  return out + "\"";
}

class JsonPrinter {
 public:
  explicit JsonPrinter(const JsonStyle& style) : style_(style) {}

  void print(const TemplateValue& value, int depth) {
    if (value.is<None>()) {
      out += "null";
    } else if (value.is<bool>()) {
      out += value.as<bool>() ? "true" : "false";
    } else if (value.is<std::int64_t>()) {
      out += std::to_string(value.integer());
    } else if (value.is<double>()) {
      const double number = value.number();
      out += std::isnan(number)   ? "NaN"
             : std::isinf(number) ? (number < 0 ? "-Infinity" : "Infinity")
                                  : float_text(number);
    } else if (value.is_string()) {
      out += json_string(value.text(), style_.ensure_ascii);
    } else if (value.is_list()) {
      const auto& items = value.items();
      print_all('[', ']', items.size(), depth, [&](std::size_t i) { print(items[i], depth + 1); });
    } else if (value.is_dict()) {
      print_dict(value.dict_data(), depth);
    } else {
      throw TemplateFailure(text_of("a value of type ", value.type_name(), " is not JSON serializable"));
    }
  }

  std::string out;

 private:
  void print_dict(const DictData& dict, int depth) {
    std::vector<std::pair<std::string, const TemplateValue*>> items;
    items.reserve(dict.items.size());
    for (const auto& [key, item] : dict.items) items.emplace_back(key_text(key), &item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    print_all('{', '}', items.size(), depth, [&](std::size_t i) {
      out += json_string(items[i].first, style_.ensure_ascii) + style_.key_separator;
      print(*items[i].second, depth + 1);
    });
  }

  static std::string key_text(const TemplateValue& key) {
    if (key.is_string()) return key.text();
    if (key.is<bool>()) return key.as<bool>() ? "true" : "false";
    if (key.is<None>()) return "null";
    if (key.is_number()) return to_text(key);
    throw TemplateFailure(text_of("JSON keys must be strings or numbers, not ", key.type_name()));
  }

  template <class Print>
  void print_all(char open, char close, std::size_t count, int depth, const Print& print_item) {
    out += open;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(depth + 1);
      print_item(i);
    }
    if (count > 0) new_line(depth);
    out += close;
  }

  void new_line(int depth) {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) out += *style_.indent;
  }

  const JsonStyle& style_;
};

}  // namespace

std::string to_text(const TemplateValue& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  return to_repr(value);
}

std::string to_repr(const TemplateValue& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is<None>()) return "None";
  if (value.is<bool>()) return value.as<bool>() ? "True" : "False";
  if (value.is<std::int64_t>()) return std::to_string(value.integer());
  if (value.is<double>()) return float_text(value.number());
  if (value.is_string()) return string_repr(value.text());
  std::string out;
  if (value.is_list()) {
    const bool is_tuple = value.as<TemplateValue::List>()->is_tuple;
    out = is_tuple ? "(" : "[";
    for (const TemplateValue& item : value.items())
      out += (&item == &value.items().front() ? "" : ", ") + to_repr(item);
    if (is_tuple && value.items().size() == 1) out += ",";
    return out + (is_tuple ? ")" : "]");
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict_data().items) {
      out += (out.empty() ? "" : ", ") + to_repr(key) + ": " + to_repr(item);
    }
    return "{" + out + "}";
  }
  throw TemplateFailure(text_of("a value of type ", value.type_name(), " cannot be printed"));
}

std::string to_json_text(const TemplateValue& value, const JsonStyle& style) {
  JsonPrinter printer(style);
  printer.print(value, 0);
  return std::move(printer.out);
}

}  // namespace hone
