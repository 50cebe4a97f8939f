#include "program/attributes.h"

#include <array>
#include <charconv>

#include "core/strings.h"

namespace hone {
namespace {

template <class Number>
std::string number_text(Number value) {
  std::array<char, 40> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  HONE_ASSERT(error == std::errc());
  return {buffer.data(), end};
}

template <class Number>
void parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw Error(text_of("'", text, "' is not a number"));
}

}  // namespace

std::string field_to_text(bool value) { return value ? "true" : "false"; }
std::string field_to_text(std::int64_t value) { return number_text(value); }
std::string field_to_text(double value) { return number_text(value); }
std::string field_to_text(const std::string& value) { return "\"" + value + "\""; }

void field_from_text(std::string_view text, bool& value) {
  if (text != "true" && text != "false") throw Error(text_of("'", text, "' is neither true nor false"));
  value = text == "true";
}
void field_from_text(std::string_view text, std::int64_t& value) {
  // Numbers of heads, their size and the like, of which an operation multiplies two.
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  parse_number(text, value);
  if (value < -kMost || value > kMost) throw Error(text_of("'", text, "' is beyond ", kMost));
}
void field_from_text(std::string_view text, double& value) { parse_number(text, value); }
void field_from_text(std::string_view text, std::string& value) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') throw Error(text_of("'", text, "' is not quoted"));
  value = text.substr(1, text.size() - 2);
}

std::vector<AttributeText> split_attributes(std::string_view text) {
  std::vector<AttributeText> entries;
  if (trim(text).empty()) return entries;
  const auto add = [&](std::string_view part) {
    const std::string_view entry = trim(part);
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) throw Error(text_of("'", entry, "' is not NAME=VALUE"));
    entries.push_back({std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1))});
  };
  std::size_t begin = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] != ',' || quoted) continue;
    add(text.substr(begin, i - begin));
    begin = i + 1;
  }
  add(text.substr(begin));
  return entries;
}

}  // namespace hone
