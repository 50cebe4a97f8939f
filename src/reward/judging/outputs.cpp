#include "reward/judging/outputs.h"

#include <algorithm>

#include "core/strings.h"

namespace hone {
namespace {

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_word(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (lower_letter(c) >= 'a' && lower_letter(c) <= 'z');
}

// Removes the first line from `text` and returns it without its line break.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

bool same_lower(std::string_view a, std::string_view b) { return std::ranges::equal(a, b, {}, lower_letter); }

// Replaces each run of blanks by one space, strips the text, and writes the words yes and no in capitals.
std::string normal_words(std::string_view text) {
  std::string words;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    if (is_blank(text[at])) {
      while (end < text.size() && is_blank(text[end])) ++end;
      if (!words.empty() && end < text.size()) words += ' ';
    } else if (is_word(text[at])) {
      while (end < text.size() && is_word(text[end])) ++end;
      const std::string_view word = text.substr(at, end - at);
      words += same_lower(word, "yes") ? "YES" : same_lower(word, "no") ? "NO" : word;
    } else {
      words += text[end++];
    }
    at = end;
  }
  return words;
}

// Replaces each run of blanks by one space and removes blanks at the end of the line.
std::string single_blanks(std::string_view line) {
  std::string single;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (!is_blank(line[at])) {
      single += line[at];
    } else if (at + 1 < line.size() && !is_blank(line[at + 1])) {
      single += ' ';
    }
  }
  return single;
}

}  // namespace

bool same_output(std::string_view printed, std::string_view expected) {
  printed = trim(printed);
  expected = trim(expected);
  while (!printed.empty() && !expected.empty()) {
    if (trim(take_line(printed)) != trim(take_line(expected))) return false;
  }
  return printed.empty() && expected.empty();
}

bool same_words(std::string_view printed, std::string_view expected) {
  return normal_words(printed) == normal_words(expected);
}

bool same_but_for_blanks(std::string_view printed, std::string_view expected) {
  while (expected.ends_with('\n')) expected.remove_suffix(1);
  std::string ended(expected);
  ended += '\n';
  expected = ended;
  while (!printed.empty() && !expected.empty()) {
    if (single_blanks(take_line(printed)) != single_blanks(take_line(expected))) return false;
  }
  return printed.empty() && expected.empty();
}

std::string unix_lines(std::string_view text) {
  std::string lines;
  lines.reserve(text.size());
  while (!text.empty()) {
    const bool ends = text.find('\n') != std::string_view::npos;
    std::string_view line = take_line(text);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines += line;
    if (ends) lines += '\n';
  }
  return lines;
}

std::string filled_lines(std::string_view text) {
  std::string lines;
  lines.reserve(text.size());
  while (!text.empty()) {
    const bool ends = text.find('\n') != std::string_view::npos;
    const std::string_view line = take_line(text);
    if (line.empty()) continue;
    lines += line;
    if (ends) lines += '\n';
  }
  return lines;
}

}  // namespace hone
