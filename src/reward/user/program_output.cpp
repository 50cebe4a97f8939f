#include "reward/user/program_output.h"

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
constexpr std::size_t kMostOfLine = 500;  // bytes of a line that are shown

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

void show_said(std::string_view name, std::string_view text) {
  const std::vector<std::string> lines = lines_of_text(text);
  for (const std::string& line : std::span(lines).first(std::min(lines.size(), kMostLines))) {
    log_info(text_of(name, ": ", line));
  }
  if (lines.size() > kMostLines) log_info(text_of(name, ": ... ", lines.size() - kMostLines, " more lines"));
}

void show_tail(std::string_view text) {
  const std::vector<std::string> lines = lines_of_text(text);
  for (const std::string& line : std::span(lines).last(std::min(lines.size(), kTailLines))) log_line("  | " + line);
}

}  // namespace hone
