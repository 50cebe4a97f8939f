#include "math_equality/dropped.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "core/characters.h"
#include "math_equality/tokens.h"

namespace hone {
namespace {

// Synonyms of units, "NAME=SYNONYM,SYNONYM". Plurals in "s" need no entry.
constexpr auto kUnitNames = std::to_array<std::string_view>({"km=kilometer,kilometre",
                                                             "m=meter,metre",
                                                             "cm=centimeter,centimetre",
                                                             "mm=millimeter,millimetre",
                                                             "ft=foot,feet",
                                                             "in=inch,inche",
                                                             "yd=yard",
                                                             "mi=mile",
                                                             "g=gram,gm",
                                                             "kg=kilogram",
                                                             "lb=pound",
                                                             "l=liter,litre",
                                                             "ml=milliliter,millilitre",
                                                             "s=second,sec",
                                                             "min=minute",
                                                             "h=hour,hr",
                                                             "year=yr",
                                                             "degree=deg,°,\\degree,\\circ",
                                                             "km/h=kmph,kmh,kph",
                                                             "dollar=buck,\\$,$,usd",
                                                             "euro=€",
                                                             "sterling=£",
                                                             "square=sq",
                                                             "cubic=cu"});

// Returns the canonical name of a unit, or the word itself if it is unknown.
std::string_view named(std::string_view word) {
  for (const std::string_view entry : kUnitNames) {
    const std::size_t names = entry.find('=') + 1;
    for (std::size_t at = names; at < entry.size();) {
      const std::size_t end = std::min(entry.find(',', at), entry.size());
      if (entry.substr(at, end - at) == word) return entry.substr(0, names - 1);
      at = end + 1;
    }
  }
  return word;
}

// Returns the canonical form of a word. Words of at most two bytes keep their case, which distinguishes units ("mg" and
// "Mg").
std::string canonical_word(std::string_view word) {
  std::string text = word.size() > 2 ? lower_case(word) : std::string(word);
  if (const std::string_view known = named(text); known != text) return std::string(known);
  if (text.size() > 2 && text.ends_with('s') && !text.ends_with("ss")) text.pop_back();
  return std::string(named(text));
}

// Returns the canonical form of a unit: its words and other characters, without text commands, braces, parentheses and
// white space.
std::string canonical_unit(std::string_view unit) {
  constexpr std::array<std::string_view, 8> kSkipped = {"\\text", "\\mbox", "\\,", "\\;", "\\:", "\\ ", "~", "\\cdot"};
  std::string result;
  std::string power;
  for (std::size_t at = 0; at < unit.size();) {
    const auto skipped = std::ranges::find_if(kSkipped, [&](auto word) { return unit.substr(at).starts_with(word); });
    if (skipped != kSkipped.end()) {
      at += skipped->size();
      continue;
    }
    std::size_t end = at + (unit[at] == '\\' ? 1 : 0);
    while (end < unit.size() && (is_letter(unit[end]) || static_cast<unsigned char>(unit[end]) >= 0x80)) ++end;
    if (end > at + (unit[at] == '\\' ? 1 : 0)) {
      const std::string word = canonical_word(unit.substr(at, end - at));
      if (result.empty() && (word == "square" || word == "cubic")) {
        power = word == "square" ? "^2" : "^3";
      } else {
        result += word;
      }
      at = end;
      continue;
    }
    if (std::string_view(" \t\n{}().,;").find(unit[at]) == std::string_view::npos) result += unit[at];
    ++at;
  }
  if (result.starts_with('^')) result.erase(0, result == "^degree" ? 1 : 0);
  return result + power;
}

}  // namespace

void note_unit(DroppedMarks& marks, std::string_view unit) {
  if (std::string mark = canonical_unit(unit); !mark.empty()) marks.insert(std::move(mark));
}

void note_signs(DroppedMarks& marks, std::string_view latex) {
  if (latex.find("\\$") != std::string_view::npos) marks.insert("dollar");
  if (latex.find("\\mathrm{th}") != std::string_view::npos) marks.insert("th");
  const std::string_view text = strip(latex);
  if (text.ends_with('"') || text.ends_with("''")) {
    marks.insert("''");
  } else if (text.ends_with('\'')) {
    marks.insert("'");
  }
}

void note_subscripts(DroppedMarks& marks, std::string_view latex) {
  constexpr std::array<std::string_view, 4> kSigns = {"_", "circ", "\\degree", "°"};
  if (std::ranges::none_of(kSigns, [&](auto sign) { return latex.find(sign) != std::string_view::npos; })) return;
  const auto tokens = tokenize_latex(latex);
  if (!tokens) return;
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    const MathToken& token = (*tokens)[i];
    if (token.is("\\circ") || token.is("\\circle") || token.is("\\degree")) marks.insert("degree");
    if (!token.is("_") || i == 0 || (*tokens)[i - 1].kind != MathToken::Kind::kNumber) continue;
    std::string base;
    int depth = 0;
    for (std::size_t at = i + 1; at < tokens->size(); ++at) {
      const MathToken& part = (*tokens)[at];
      if (part.is("{")) {
        ++depth;
      } else if (part.is("}")) {
        --depth;
      } else {
        base += part.text;
      }
      if (depth <= 0) break;
    }
    if (base != "10" && base != "ten") marks.insert("base" + base);
  }
}

void note_around_number(DroppedMarks& marks, std::string_view before, std::string_view behind) {
  constexpr std::size_t kLongest = 32;  // bytes
  constexpr std::array<std::string_view, 5> kCurrencies = {"", "$", "\\$", "£", "€"};
  const std::string_view sign = strip(before);
  if (std::ranges::find(kCurrencies, sign) == kCurrencies.end() || behind.size() > kLongest) return;
  note_unit(marks, sign);
  if (strip(behind).starts_with('_')) {
    note_subscripts(marks, "1" + std::string(strip(behind)));
  } else {
    note_unit(marks, behind);
  }
}

}  // namespace hone
