#include "program/quoted.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "core/error.h"

namespace hone {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

// Decodes the escape at the beginning of `escape`, whose backslash has been removed, and removes it from `escape`.
char unescaped(std::string_view& escape) {
  const char c = escape.front();
  escape.remove_prefix(1);
  if (c == '"' || c == '\\') return c;
  if (c == 'n') return '\n';
  std::uint8_t byte = 0;
  const char* const digits = escape.data();
  const auto [end, error] = std::from_chars(digits, digits + std::min<std::size_t>(escape.size(), 2), byte, 16);
  if (c != 'x' || error != std::errc() || end != digits + 2) {
    throw Error(text_of("'\\", c, escape.substr(0, 2), "' is not a valid escape"));
  }
  escape.remove_prefix(2);
  return static_cast<char>(byte);
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    if (c == '\n') {
      result.append("\\n");
    } else if (is_control(c)) {
      result.append("\\x").append(1, kDigits[static_cast<unsigned char>(c) >> 4]).append(1, kDigits[c & 15]);
    } else {
      if (c == '"' || c == '\\') result.push_back('\\');
      result.push_back(c);
    }
  }
  return result + "\"";
}

std::size_t quoted_length(std::string_view text) {
  if (!text.starts_with('"')) throw Error(text_of("'", text.substr(0, 20), "' is not quoted"));
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  }
  throw Error("a closing quote is missing");
}

std::string unquoted(std::string_view text) {
  if (quoted_length(text) != text.size()) throw Error(text_of("'", text, "' is not quoted"));
  std::string result;
  for (std::string_view rest = text.substr(1, text.size() - 2); !rest.empty();) {
    const char c = rest.front();
    rest.remove_prefix(1);
    result.push_back(c == '\\' ? unescaped(rest) : c);
  }
  return result;
}

}  // namespace hone
