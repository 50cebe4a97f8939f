#include "math_equality/plain_numbers.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/characters.h"

namespace hone {
namespace {

constexpr std::size_t kLongestExpression = 512;  // bytes

// Calls body(start) for each offset at which a number may start, until it returns a match: at the beginning of the
// text, after one white space or "=", and after "**" at these offsets.
template <class Body>
std::optional<AnswerMatch> behind_prefix(std::string_view text, std::size_t at, const Body& body) {
  std::array<std::size_t, 2> starts = {std::string_view::npos, std::string_view::npos};
  if (at == 0) starts[0] = 0;
  if (at < text.size()) {
    if (const std::size_t space = white_space_length(text, at)) starts[1] = at + space;
    if (text[at] == '=') starts[1] = at + 1;
  }
  for (const std::size_t start : starts) {
    if (start == std::string_view::npos) continue;
    if (text.substr(start).starts_with("**")) {
      if (auto found = body(start + 2)) return found;
    }
    if (auto found = body(start)) return found;
  }
  return std::nullopt;
}

std::size_t digits_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

bool three_digits(std::string_view text, std::size_t at) {
  return at + 3 <= text.size() && is_digit(text[at]) && is_digit(text[at + 1]) && is_digit(text[at + 2]);
}

// Returns the end of the groups of three digits that follow the digits [first, whole); `whole` if there are none.
std::size_t groups_end(std::string_view text, std::size_t first, std::size_t whole) {
  std::size_t end = whole;
  if (whole == first || text[first] == '0' || whole - first > 3) return end;
  while (end < text.size() && (text[end] == ' ' || text[end] == ',') && three_digits(text, end + 1)) end += 4;
  return end;
}

// Returns the end of a number, trying in this order: groups of thousands with an optional decimal part; digits with a
// decimal point or comma; plain digits. A number may also begin with the decimal point. npos if there is no number.
std::size_t number_end(std::string_view text, std::size_t at) {
  const std::size_t first = at + (at < text.size() && text[at] == '-' ? 1 : 0);
  const std::size_t whole = digits_end(text, first);
  const auto fraction_end = [&](std::size_t point) {
    return point + 1 < text.size() && is_digit(text[point + 1]) ? digits_end(text, point + 1) : std::string_view::npos;
  };
  if (whole == first) return at < text.size() && text[at] == '.' ? fraction_end(at) : std::string_view::npos;
  if (const std::size_t end = groups_end(text, first, whole); end > whole) {
    const std::size_t decimals = end < text.size() && text[end] == '.' ? fraction_end(end) : std::string_view::npos;
    return decimals == std::string_view::npos ? end : decimals;
  }
  if (whole < text.size() && (text[whole] == '.' || text[whole] == ',')) {
    if (const std::size_t end = fraction_end(whole); end != std::string_view::npos) return end;
  }
  return whole;
}

std::size_t currency_length(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("$")) return 1;
  if (rest.starts_with("£") || rest.starts_with("¥")) return 2;
  if (rest.starts_with("฿")) return 3;
  const bool block = rest.starts_with("\xE2\x82") && rest.size() > 2;  // U+20A0..20BF
  return block && static_cast<std::uint8_t>(rest[2]) >= 0xA0 ? 3 : 0;
}

std::size_t behind_spaced_percent(std::string_view text, std::size_t at) {
  const std::size_t sign = skip_spaces(text, at);
  const std::string_view rest = text.substr(sign);
  for (const std::string_view word : {"%", "percent", "Percent", "pct", "Pct"}) {
    if (rest.starts_with(word)) return sign + word.size();
  }
  return at;
}

// Returns the length of an operator or parenthesis (+ - * × / ÷ ^ ( )) at `at`; 0 if there is none.
std::size_t operator_length(std::string_view text, std::size_t at) {
  if (std::string_view("+-*/^()").find(text[at]) != std::string_view::npos) return 1;
  const std::string_view rest = text.substr(at);
  return rest.starts_with("×") || rest.starts_with("÷") ? 2 : 0;
}

// Returns the offset after the text that must follow an expression; npos if other text follows.
std::size_t suffix_end(std::string_view text, std::size_t at) {
  const auto closing = [&](std::size_t place) {
    if (place >= text.size()) return place;
    if (const std::size_t space = white_space_length(text, place)) return place + space;
    return std::string_view(".,:)$").find(text[place]) != std::string_view::npos ? place + 1 : std::string_view::npos;
  };
  if (text.substr(at).starts_with("**")) {
    if (const std::size_t end = closing(at + 2); end != std::string_view::npos) return end;
  }
  return closing(at);
}

AnswerMatch found_match(AnswerMatch::Kind kind, std::size_t begin, std::size_t end, AnswerMatch::Piece piece) {
  AnswerMatch found;
  found.kind = kind;
  found.begin = begin;
  found.end = end;
  found.pieces.push_back(piece);
  return found;
}

// Matches the longest stretch of digits, points, spaces and operators that contains an operator before its last
// character and is followed by a suffix. Like a greedy pattern, the search tries operators from the right, then ends
// from the right.
std::optional<AnswerMatch> expression_from(std::string_view text, std::size_t at, std::size_t start) {
  std::size_t digit = start;
  for (const char sign : {'-', '(', '-'}) {
    if (digit < text.size() && text[digit] == sign) ++digit;
  }
  if (digit >= text.size() || !is_digit(text[digit])) return std::nullopt;
  std::vector<std::size_t> ends;       // end offsets of the characters after the first digit
  std::vector<std::size_t> operators;  // indices into ends
  for (std::size_t i = digit + 1; i < text.size() && i < start + kLongestExpression;) {
    const std::size_t sign = operator_length(text, i);
    const std::size_t length = sign > 0 ? sign : is_digit(text[i]) || text[i] == '.' ? 1 : white_space_length(text, i);
    if (length == 0) break;
    if (sign > 0) operators.push_back(ends.size());
    ends.push_back(i += length);
  }
  std::size_t limit = ends.size();
  for (std::size_t k = operators.size(); k-- > 0;) {
    for (std::size_t last = limit; last-- > operators[k] + 1;) {
      const std::size_t end = suffix_end(text, ends[last]);
      if (end == std::string_view::npos) continue;
      return found_match(AnswerMatch::Kind::kExpression, at, end, {text.substr(start, ends[last] - start), false});
    }
    limit = operators[k] + 1;
  }
  return std::nullopt;
}

}  // namespace

std::string canonical_number(std::string_view number) {
  const bool negative = number.starts_with('-');
  if (negative) number.remove_prefix(1);
  const std::size_t whole = digits_end(number, 0);
  const std::size_t end = groups_end(number, 0, whole);
  std::string digits;
  for (const char c : number.substr(0, end)) {
    if (is_digit(c)) digits += c;
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  std::string result = (negative ? "-" : "") + (digits.empty() ? "0" : digits);
  if (end < number.size()) result.append(".").append(number.substr(end + 1));
  return result;
}

std::optional<AnswerMatch> match_number(std::string_view text, std::size_t at) {
  return behind_prefix(text, at, [&](std::size_t start) -> std::optional<AnswerMatch> {
    if (start < text.size()) start += currency_length(text, start);
    const std::size_t end = number_end(text, start);
    if (end == std::string_view::npos) return std::nullopt;
    const std::size_t behind = behind_spaced_percent(text, end);
    return found_match(AnswerMatch::Kind::kNumber, at, behind, {text.substr(start, end - start), behind > end});
  });
}

std::optional<AnswerMatch> match_expression(std::string_view text, std::size_t at) {
  return behind_prefix(text, at, [&](std::size_t start) { return expression_from(text, at, start); });
}

}  // namespace hone
