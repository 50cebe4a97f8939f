#include "jinja/python_text.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "core/unicode.h"

namespace hone {
namespace {

template <class Predicate>
std::string_view strip_where(std::string_view text, StripSide side, const Predicate& strips) {
  if (side != StripSide::kRight) {
    while (!text.empty()) {
      const auto [c, size] = decode_utf8(text, 0);
      if (!strips(c)) break;
      text.remove_prefix(size);
    }
  }
  if (side != StripSide::kLeft) {
    while (!text.empty()) {
      const std::size_t last = previous_utf8(text, text.size());
      if (!strips(decode_utf8(text, last).value)) break;
      text = text.substr(0, last);
    }
  }
  return text;
}

std::vector<std::string> split_at_space(std::string_view text, std::int64_t limit, bool from_right) {
  std::vector<std::string> parts;
  const auto full = [&] { return limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit; };
  for (;;) {
    text = strip_where(text, from_right ? StripSide::kRight : StripSide::kLeft, is_python_space);
    if (text.empty()) break;
    if (full()) {
      parts.emplace_back(text);
      break;
    }
    std::string_view rest = strip_where(text, from_right ? StripSide::kRight : StripSide::kLeft,
                                        [](char32_t c) { return !is_python_space(c); });
    parts.emplace_back(from_right ? text.substr(rest.size()) : text.substr(0, text.size() - rest.size()));
    text = rest;
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

bool is_python_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view strip_python_space_left(std::string_view text) {
  return strip_where(text, StripSide::kLeft, is_python_space);
}
std::string_view strip_python_space_right(std::string_view text) {
  return strip_where(text, StripSide::kRight, is_python_space);
}
std::string_view strip_python_space(std::string_view text) {
  return strip_where(text, StripSide::kBoth, is_python_space);
}

std::string_view python_strip(std::string_view text, const std::optional<std::string>& characters, StripSide side) {
  if (!characters) return strip_where(text, side, is_python_space);
  std::u32string set;
  for (std::size_t at = 0; at < characters->size();) {
    const auto [c, size] = decode_utf8(*characters, at);
    set.push_back(c);
    at += size;
  }
  return strip_where(text, side, [&](char32_t c) { return set.find(c) != std::u32string::npos; });
}

std::vector<std::string> python_split(std::string_view text, const std::optional<std::string>& separator,
                                      std::int64_t limit, bool from_right) {
  if (!separator) return split_at_space(text, limit, from_right);
  std::vector<std::string> parts;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(from_right ? text.substr(at + separator->size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator->size());
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> python_split_lines(std::string_view text, bool keep_ends) {
  const auto ends_line = [](char32_t c) {
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = decode_utf8(text, at);
    const std::size_t line_end = at;
    at += size;
    if (!ends_line(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (keep_ends ? at : line_end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string python_replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t limit) {
  std::string out;
  std::int64_t done = 0;
  std::size_t at = 0;
  while (limit < 0 || done < limit) {
    if (from.empty()) {  // insert between all characters and at both ends
      out.append(to);
      ++done;
      if (at >= text.size()) return out;
      const std::size_t size = decode_utf8(text, at).size;
      out.append(text.substr(at, size));
      at += size;
      continue;
    }
    const std::size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
    ++done;
  }
  return out.append(text.substr(at));
}

std::string python_capitalize(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t size = decode_utf8(text, 0).size;
  return to_upper(text.substr(0, size)) + to_lower(text.substr(size));
}

std::string python_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = decode_utf8(text, at);
    const std::string_view character = text.substr(at, size);
    const Category category = properties_of(c).category();
    const bool cased = category == Category::kLl || category == Category::kLu || category == Category::kLt;
    out += in_word ? to_lower(character) : to_upper(character);
    in_word = cased;
    at += size;
  }
  return out;
}

std::vector<std::size_t> character_offsets(std::string_view text) {
  std::vector<std::size_t> offsets;
  for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at).size) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

std::string python_strftime(std::string_view format, std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm fields{};
  if (gmtime_r(&time, &fields) == nullptr) return {};
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    std::string directive = "%";
    do directive += format[++at];
    while (at + 1 < format.size() && std::string_view("-_0^#EO").find(format[at]) != std::string_view::npos);
    const char kind = directive.back();
    if (kind == 'f') {
      out += "000000";
    } else if (kind != 'z' && kind != 'Z') {  // a naive time has no zone
      std::array<char, 256> buffer{};
      out.append(buffer.data(), std::strftime(buffer.data(), buffer.size(), directive.c_str(), &fields));
    }
  }
  return out;
}

}  // namespace hone
