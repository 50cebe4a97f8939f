#include "math_equality/units.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "core/characters.h"

namespace hone {
namespace {

// Cuts "5 \text{ cm}^2" at the first \text or \mbox if the text ends in a brace, optionally with an exponent.
std::string without_unit_command(const std::string& text) {
  std::string_view head = text;
  if (head.size() >= 4 && head.ends_with('}') && is_digit(head[head.size() - 2]) &&
      head.substr(head.size() - 4).starts_with("{^")) {
    head.remove_suffix(4);
  } else if (head.size() >= 2 && is_digit(head.back()) && head[head.size() - 2] == '^') {
    head.remove_suffix(2);
  }
  if (!head.ends_with('}')) return text;
  const std::size_t begin = std::min(head.find("\\text{"), head.find("\\mbox{"));
  if (begin == std::string_view::npos) return text;
  const std::string_view rest = strip(std::string_view(text).substr(0, begin));
  return rest.empty() ? text : std::string(rest);
}

// List of latex2sympy2_extended. '.' matches any character, as in its pattern.
constexpr std::array kUnits = std::to_array<std::string_view>({"integerpoint",
                                                               "feet",
                                                               "sue",
                                                               "digit",
                                                               "pound",
                                                               "meal",
                                                               "edge",
                                                               "student",
                                                               "children ticket",
                                                               "multiple",
                                                               "east",
                                                               "degree",
                                                               "mph",
                                                               "kmph",
                                                               "ft",
                                                               "m square",
                                                               " m east",
                                                               "sq m",
                                                               "deg",
                                                               "mile",
                                                               "q .",
                                                               "monkey",
                                                               "prime",
                                                               "ratio",
                                                               "profit of rs",
                                                               "rd",
                                                               "o",
                                                               "gm",
                                                               "p . m",
                                                               "lb",
                                                               "tile",
                                                               "per",
                                                               "dm",
                                                               "lt",
                                                               "gain",
                                                               "ab",
                                                               "way",
                                                               "west",
                                                               "a .",
                                                               "b .",
                                                               "c .",
                                                               "d .",
                                                               "e .",
                                                               "f .",
                                                               "g .",
                                                               "h .",
                                                               "t",
                                                               "h",
                                                               "no change",
                                                               "men",
                                                               "soldier",
                                                               "pie",
                                                               "bc",
                                                               "excess",
                                                               "st",
                                                               "inches",
                                                               "noon",
                                                               "cent",
                                                               "by",
                                                               "gal",
                                                               "kmh",
                                                               "c",
                                                               "acre",
                                                               "rise",
                                                               "a . m",
                                                               "th",
                                                               "sq",
                                                               "mark",
                                                               "l",
                                                               "toy",
                                                               "coin",
                                                               "sq . m",
                                                               "gallon",
                                                               "profit",
                                                               "minw",
                                                               "yr",
                                                               "women",
                                                               "am",
                                                               "pm",
                                                               "hr",
                                                               "cu cm",
                                                               "square",
                                                               "are",
                                                               "rupee",
                                                               "rounds",
                                                               "cubic",
                                                               "cc",
                                                               "mtr",
                                                               "s",
                                                               "ohm",
                                                               "number",
                                                               "day",
                                                               "hour",
                                                               "minute",
                                                               "min",
                                                               "second",
                                                               "man",
                                                               "woman",
                                                               "sec",
                                                               "cube",
                                                               "mt",
                                                               "sq inch",
                                                               "mp",
                                                               "hectare",
                                                               "more",
                                                               "unit",
                                                               "cu . m",
                                                               "cm 2",
                                                               "rs .",
                                                               "rs",
                                                               "kg",
                                                               "g",
                                                               "month",
                                                               "km",
                                                               "m",
                                                               "cm",
                                                               "mm",
                                                               "apple",
                                                               "liter",
                                                               "loss",
                                                               "yard",
                                                               "pure",
                                                               "year",
                                                               "increase",
                                                               "decrease",
                                                               "d",
                                                               "less",
                                                               "Surface",
                                                               "litre",
                                                               "pi sq m",
                                                               "s .",
                                                               "metre",
                                                               "meter",
                                                               "inch"});

bool ends_with_pattern(std::string_view text, std::string_view pattern) {
  if (text.size() < pattern.size()) return false;
  const std::string_view tail = text.substr(text.size() - pattern.size());
  return std::ranges::equal(tail, pattern, [](char c, char p) { return p == '.' || c == p; });
}

// Returns the end of the value if a unit begins at `unit`: after a digit or a closing brace, or after the first of the
// spaces before the unit; npos if there is neither.
std::size_t end_before_unit(std::string_view text, std::size_t unit) {
  std::size_t end = unit;
  while (end > 0 && text[end - 1] == ' ') --end;
  if (end > 0 && (is_digit(text[end - 1]) || text[end - 1] == '}')) return end;
  return end < unit ? end + 1 : std::string_view::npos;
}

std::string without_unit(const std::string& text) {
  std::string_view head = text;
  while (head.ends_with(' ')) head.remove_suffix(1);
  std::size_t shortest = std::string_view::npos;
  for (const std::string_view unit : kUnits) {
    for (const std::string_view plural : {"", "s", "es"}) {
      if (!head.ends_with(plural)) continue;
      const std::string_view stem = head.substr(0, head.size() - plural.size());
      if (!ends_with_pattern(stem, unit)) continue;
      shortest = std::min(shortest, end_before_unit(head, stem.size() - unit.size()));
    }
  }
  return shortest == std::string_view::npos || shortest == 0 ? text : text.substr(0, shortest);
}

}  // namespace

UnitSplit split_units(const std::string& text) {
  std::string value = without_unit(without_unit(without_unit_command(text)));
  if (value == text) return {std::move(value), {}};
  return {value, text.substr(text.find(value) + value.size())};  // white space before the value may be removed, too
}

}  // namespace hone
