#include "text/word_scanner.h"

#include <algorithm>

#include "core/unicode.h"
#include "text/split_patterns.h"

namespace hone {
namespace {

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_punctuation(char c) { return c > ' ' && c < 0x7F && !is_ascii_letter(c) && !(c >= '0' && c <= '9'); }

}  // namespace

std::optional<WordScanner> WordScanner::of(std::span<const std::string> patterns) {
  if (patterns.size() == 1) {
    if (patterns[0] == kGpt2Pattern) return WordScanner(Style::kGpt2, false, 0);
    if (patterns[0] == kQwen2Pattern) return WordScanner(Style::kQwen, false, 1);
    if (patterns[0] == kLlama3Pattern) return WordScanner(Style::kQwen, false, 3);
    if (patterns[0] == kQwen35Pattern) return WordScanner(Style::kQwen, true, 1);
  }
  if (std::equal(patterns.begin(), patterns.end(), std::begin(kDeepSeekPatterns), std::end(kDeepSeekPatterns))) {
    return WordScanner(Style::kDeepSeek, true, 3);
  }
  return std::nullopt;
}

WordScanner::WordScanner(Style style, bool marks_are_letters, unsigned most_digits)
    : style_(style), marks_are_letters_(marks_are_letters), most_digits_(most_digits) {
  for (char32_t c = 0; c < 128; ++c) ascii_[c] = class_of(c);
}

// kMark and kNone are used only for DeepSeek: marks may precede a word like a space; no alternative begins with kNone.
WordScanner::Class WordScanner::class_of(char32_t c) const {
  const Properties properties = properties_of(c);
  const Category category = properties.category();
  const bool deepseek = style_ == Style::kDeepSeek;
  if (deepseek && ((c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF))) return Class::kHan;
  if (category >= Category::kLl && category <= Category::kLu) return Class::kLetter;
  if (category >= Category::kNd && category <= Category::kNo) return Class::kNumber;
  if (c == '\n' || c == '\r') return Class::kNewline;
  if (properties.pattern_space()) return Class::kSpace;
  const bool mark = category >= Category::kMc && category <= Category::kMn;
  if (mark && marks_are_letters_) return deepseek ? Class::kMark : Class::kLetter;
  return deepseek && !(category >= Category::kPc && category <= Category::kSo) ? Class::kNone : Class::kOther;
}

WordScanner::Character WordScanner::look(std::string_view text, std::size_t at) const {
  if (at >= text.size()) return {Class::kNone, 0};
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {ascii_[byte], 1};
  const auto [c, size] = decode_utf8(text, at);
  return {class_of(c), size};
}

std::size_t WordScanner::skip(std::string_view text, std::size_t at, Class what) const {
  for (;;) {
    const Character c = look(text, at);
    if (c.what != what || c.size == 0) return at;
    at += c.size;
  }
}

// Skips letters, and marks if they count as letters.
std::size_t WordScanner::after_word(std::string_view text, std::size_t at) const {
  for (;;) {
    const Character c = look(text, at);
    if (c.what != Class::kLetter && c.what != Class::kMark) return at;
    at += c.size;
  }
}

// Matches \s*[\r\n]+|\s+(?!\S)|\s+ in the white space from `at` to `end`.
std::size_t WordScanner::after_space(std::string_view text, std::size_t at, std::size_t end) const {
  if (style_ != Style::kGpt2) {
    const std::size_t newline = text.substr(at, end - at).find_last_of("\r\n");
    if (newline != std::string_view::npos) return at + newline + 1;
  }
  const Character next = look(text, end);
  const bool at_end =
      next.size == 0 || (style_ == Style::kDeepSeek && (next.what == Class::kNumber || next.what == Class::kHan));
  if (at_end) return end;
  const std::size_t last = previous_utf8(text, end);
  return last > at ? last : end;
}

// Returns the end of 's 't 're 've 'm 'll 'd at `at`, or `at`.
std::size_t WordScanner::contraction(std::string_view text, std::size_t at) const {
  const bool folds = style_ == Style::kQwen;
  const auto letter = [&](std::size_t i) -> char {
    if (i >= text.size()) return '\0';
    const char c = text[i];
    return folds && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
    return at + 3;
  return folds && text.substr(at + 1, 2) == "\u017F" ? at + 3 : at;  // the long s folds to s
}

std::size_t WordScanner::next_gpt2(std::string_view text, std::size_t at) const {
  if (text[at] == '\'') {
    if (const std::size_t end = contraction(text, at); end != at) return end;
  }
  const auto is_space = [](Class what) { return what == Class::kSpace || what == Class::kNewline; };
  Character c = look(text, at);
  std::size_t begin = at;
  if (text[at] == ' ') {
    const Character next = look(text, at + 1);
    if (next.size > 0 && !is_space(next.what)) {
      begin = at + 1;
      c = next;
    }
  }
  if (!is_space(c.what)) return skip(text, begin + c.size, c.what);
  std::size_t end = at;
  for (Character next = c; next.size > 0 && is_space(next.what); next = look(text, end)) end += next.size;
  return after_space(text, at, end);
}

std::size_t WordScanner::next_qwen(std::string_view text, std::size_t at) const {
  const Character c = look(text, at);
  if (c.what == Class::kLetter) return after_word(text, at + c.size);
  if (c.what == Class::kNumber) {
    std::size_t end = at + c.size;
    for (unsigned count = 1; count < most_digits_; ++count) {
      const Character next = look(text, end);
      if (next.what != Class::kNumber) break;
      end += next.size;
    }
    return end;
  }
  if (text[at] == '\'') {
    if (const std::size_t end = contraction(text, at); end != at) return end;
  }
  const std::size_t second = at + c.size;
  const Character next = look(text, second);
  if (c.what != Class::kNewline && next.what == Class::kLetter) return after_word(text, second + next.size);
  const bool spaced = text[at] == ' ' && next.what == Class::kOther;
  if (c.what == Class::kOther || spaced) return skip(text, skip(text, second, Class::kOther), Class::kNewline);
  std::size_t end = second;
  for (Character more = next; more.what == Class::kSpace || more.what == Class::kNewline; more = look(text, end)) {
    end += more.size;
  }
  return after_space(text, at, end);
}

// Returns the end of a match of the last pattern at `at`, or `at`.
std::size_t WordScanner::match_deepseek(std::string_view text, std::size_t at) const {
  const Character c = look(text, at);
  const std::size_t second = at + c.size;
  if (c.what == Class::kLetter || c.what == Class::kMark) return after_word(text, second);
  if (is_ascii_punctuation(text[at]) && second < text.size() && is_ascii_letter(text[second])) {
    std::size_t end = second;
    while (end < text.size() && is_ascii_letter(text[end])) ++end;
    return end;
  }
  const Character next = look(text, second);
  const bool before_word = c.what == Class::kSpace || c.what == Class::kNone;
  if (before_word && (next.what == Class::kLetter || next.what == Class::kMark)) return after_word(text, second);
  const bool spaced = text[at] == ' ' && next.what == Class::kOther;
  if (c.what == Class::kOther || spaced) return skip(text, skip(text, second, Class::kOther), Class::kNewline);
  if (c.what == Class::kNone) return at;
  std::size_t end = second;
  for (Character more = next; more.what == Class::kSpace || more.what == Class::kNewline; more = look(text, end)) {
    end += more.size;
  }
  return after_space(text, at, end);
}

std::size_t WordScanner::next_deepseek(std::string_view text, std::size_t at) const {
  const Character c = look(text, at);
  if (c.what == Class::kHan) return skip(text, at, Class::kHan);
  if (c.what == Class::kNumber) {
    std::size_t end = at + c.size;
    for (unsigned count = 1; count < most_digits_; ++count) {
      const Character next = look(text, end);
      if (next.what != Class::kNumber) break;
      end += next.size;
    }
    return end;
  }
  // Unmatched characters form one piece that ends where the pattern matches again.
  std::size_t end = at;
  for (;;) {
    const Character next = look(text, end);
    if (next.size == 0 || next.what == Class::kHan || next.what == Class::kNumber) return end;
    if (const std::size_t matched = match_deepseek(text, end); matched != end) return end == at ? matched : end;
    end += next.size;
  }
}

void WordScanner::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = style_ == Style::kQwen   ? next_qwen(text, at)
                            : style_ == Style::kGpt2 ? next_gpt2(text, at)
                                                     : next_deepseek(text, at);
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace hone
