#include "core/characters.h"

#include <cstdint>

namespace hone {

std::size_t white_space_length(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<std::uint8_t>(text[at + i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return first == ' ' || (first >= 9 && first <= 13) || (first >= 28 && first <= 31) ? 1 : 0;
  if (first == 0xC2) return byte(1) == 0x85 || byte(1) == 0xA0 ? 2 : 0;
  if (first == 0xE1) return byte(1) == 0x9A && byte(2) == 0x80 ? 3 : 0;  // U+1680
  if (first == 0xE2 && byte(1) == 0x80) {                                // U+2000..200A, 2028, 2029, 202F
    const unsigned last = byte(2);
    return (last >= 0x80 && last <= 0x8A) || last == 0xA8 || last == 0xA9 || last == 0xAF ? 3 : 0;
  }
  if (first == 0xE2) return byte(1) == 0x81 && byte(2) == 0x9F ? 3 : 0;  // U+205F
  if (first == 0xE3) return byte(1) == 0x80 && byte(2) == 0x80 ? 3 : 0;  // U+3000
  return 0;
}

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (const std::size_t length = white_space_length(text, at)) at += length;
  return at;
}

std::string_view strip(std::string_view text) {
  text.remove_prefix(skip_spaces(text, 0));
  for (;;) {
    std::size_t shorter = text.size();
    for (std::size_t length = 1; length <= 3 && length <= text.size(); ++length) {
      if (white_space_length(text, text.size() - length) == length) shorter = text.size() - length;
    }
    if (shorter == text.size()) return text;
    text = text.substr(0, shorter);
  }
}

std::size_t next_code_point(std::string_view text, std::size_t at) {
  ++at;
  while (at < text.size() && (static_cast<std::uint8_t>(text[at]) & 0xC0u) == 0x80u) ++at;
  return at;
}

std::size_t code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at = next_code_point(text, at)) ++count;
  return count;
}

namespace {

// Lower case of a code point below U+0800.
unsigned lower_of(unsigned c) {
  if (c < 0x80) return static_cast<unsigned char>(lower(static_cast<char>(c)));
  if (c >= 0xC0 && c <= 0xDE) return c == 0xD7 ? c : c + 32;
  if ((c >= 0x100 && c <= 0x12F) || (c >= 0x132 && c <= 0x137) || (c >= 0x14A && c <= 0x177)) return c | 1u;
  if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E)) return c % 2 != 0 ? c + 1 : c;
  if (c == 0x178) return 0xFF;
  if (c == 0x386) return 0x3AC;
  if (c >= 0x388 && c <= 0x38A) return c + 37;
  if (c == 0x38C) return 0x3CC;
  if (c == 0x38E || c == 0x38F) return c + 63;
  if (c >= 0x391 && c <= 0x3AB) return c == 0x3A2 ? c : c + 32;
  if (c >= 0x400 && c <= 0x40F) return c + 80;
  if (c >= 0x410 && c <= 0x42F) return c + 32;
  return c;
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = next_code_point(text, at);
    const auto first = static_cast<std::uint8_t>(text[at]);
    if (end - at == 1 && first < 0x80) {
      result += lower(text[at]);
    } else if (end - at == 2 && first >= 0xC2 && first < 0xE0) {
      const unsigned c = lower_of((first & 0x1Fu) << 6 | (static_cast<std::uint8_t>(text[at + 1]) & 0x3Fu));
      result += static_cast<char>(0xC0u | (c >> 6));
      result += static_cast<char>(0x80u | (c & 0x3Fu));
    } else {
      result += text.substr(at, end - at);
    }
    at = end;
  }
  return result;
}

}  // namespace hone
