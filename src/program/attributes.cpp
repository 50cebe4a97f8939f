#include "program/attributes.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "core/strings.h"
#include "program/quoted.h"

namespace hone {
namespace {

// Prefix of a NaN, which is printed as its bits in hexadecimal: "nan:7ff8000000000000".
constexpr std::string_view kNan = "nan:";

template <class Number>
std::string number_text(Number value) {
  std::array<char, 40> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  HONE_ASSERT(error == std::errc());
  return {buffer.data(), end};
}

template <class Number, class... Base>
void parse_number(std::string_view text, Number& value, Base... base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc() || end != text.data() + text.size()) throw Error(text_of("'", text, "' is not a number"));
}

}  // namespace

std::string field_to_text(bool value) { return value ? "true" : "false"; }
std::string field_to_text(std::int64_t value) { return number_text(value); }
std::string field_to_text(double value) {
  if (!std::isnan(value)) return number_text(value);
  std::array<char, 16> digits{};
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  HONE_ASSERT(error == std::errc());
  return std::string(kNan).append(digits.data(), end);
}
std::string field_to_text(const std::string& value) { return in_quotes(value); }

void field_from_text(std::string_view text, bool& value) {
  if (text != "true" && text != "false") throw Error(text_of("'", text, "' is neither true nor false"));
  value = text == "true";
}
void field_from_text(std::string_view text, std::int64_t& value) { parse_number(text, value); }
void field_from_text(std::string_view text, double& value) {
  if (!text.starts_with(kNan)) return parse_number(text, value);
  std::uint64_t bits = 0;
  parse_number(text.substr(kNan.size()), bits, 16);
  value = std::bit_cast<double>(bits);
  if (!std::isnan(value)) throw Error(text_of("'", text, "' is not a NaN"));
}
void field_from_text(std::string_view text, std::string& value) { value = unquoted(text); }

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
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') i += quoted_length(text.substr(i)) - 1;
    if (text[i] != ',') continue;
    add(text.substr(begin, i - begin));
    begin = i + 1;
  }
  add(text.substr(begin));
  return entries;
}

}  // namespace hone
