#include "reward/own/said.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::size_t kMostLines = 100;
constexpr std::size_t kTailLines = 20;
constexpr std::size_t kMostOfLine = 500;  // bytes

// The bytes of the printable UTF-8 character that begins the text; 0 where there is none.
std::size_t printable_size(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7F ? 1 : 0;
  const std::size_t size = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : byte(0) >= 0xC2 ? 2 : 0;
  if (size == 0 || byte(0) > 0xF4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  const bool is_control = byte(0) == 0xC2 && byte(1) < 0xA0;  // U+0080 to U+009F
  return is_control ? 0 : size;
}

std::vector<std::string> lines_of_text(std::string_view text) {
  std::vector<std::string> lines;
  for (const std::string& line : split(trim(text), '\n')) {
    std::string_view part(line);
    while (!part.empty() && part.back() == '\r') part.remove_suffix(1);
    const bool is_long = part.size() > kMostOfLine;
    if (!trim(part).empty()) lines.push_back(printable(part.substr(0, kMostOfLine)) + (is_long ? " ..." : ""));
  }
  return lines;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    std::size_t size = printable_size(text);
    if (text[0] == '\t') size = 1;
    if (size > 0) {
      result.append(text.substr(0, size));
    } else {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\x%02x", static_cast<unsigned char>(text[0]));
      result.append(code.data());
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return result;
}

void show_said(std::string_view name, std::string_view text) {
  const std::vector<std::string> lines = lines_of_text(text);
  for (const std::string& line : std::span(lines).first(std::min(lines.size(), kMostLines))) {
    log_info(text_of(name, ": ", line));
  }
  if (lines.size() > kMostLines) log_info(text_of(name, ": ... ", lines.size() - kMostLines, " lines more"));
}

void show_tail(std::string_view text) {
  const std::vector<std::string> lines = lines_of_text(text);
  for (const std::string& line : std::span(lines).last(std::min(lines.size(), kTailLines))) log_line("  | " + line);
}

}  // namespace hone
