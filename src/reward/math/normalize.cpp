#include "reward/math/normalize.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <vector>

#include "reward/characters.h"

namespace hone {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

// --- boxes

// The index of the brace that closes the one at `open`, before `limit`.
std::size_t closing_brace(std::string_view text, std::size_t open, std::size_t limit) {
  int depth = 0;
  for (std::size_t i = open; i < limit; ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return kNone;
}

bool has_separator(std::string_view text) {
  if (text.find_first_of(",;") != kNone) return true;
  const auto is_word = [](char c) { return is_letter(c) || is_digit(c) || c == '_'; };
  for (const std::string_view word : {std::string_view("and"), std::string_view("or")}) {
    for (std::size_t at = text.find(word); at != kNone; at = text.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
    }
  }
  return false;
}

// Whether a box belongs to the one that follows it.
bool boxes_join(std::string_view between, std::string_view content, std::string_view next_content) {
  const std::size_t length = code_points(between);
  return length < 10 || (next_content != content && length < 70 && has_separator(between));
}

struct BoxCommand {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<BoxCommand> box_commands(std::string_view text) {
  std::vector<BoxCommand> commands;
  for (std::size_t at = text.find('\\'); at != kNone; at = text.find('\\', at + 1)) {
    for (const std::string_view command : {std::string_view("\\boxed"), std::string_view("\\fbox")}) {
      if (text.substr(at).starts_with(command)) commands.push_back({at, at + command.size()});
    }
  }
  return commands;
}

// --- replacements: a rule says how many bytes it takes at a place, and what stands there instead

struct Replacement {
  std::size_t length = 0;  // 0: no match
  std::string_view with;
};

bool at_is(std::string_view text, std::size_t at, std::string_view word) { return text.substr(at).starts_with(word); }

bool word_edge(std::string_view text, std::size_t at) {
  const auto is_word = [&](std::size_t i) {
    return i < text.size() && (is_letter(text[i]) || is_digit(text[i]) || text[i] == '_');
  };
  return (at > 0 && is_word(at - 1)) != is_word(at);
}

// \left and \right (also \mleft, \mright) before a delimiter.
std::size_t sizing_command(std::string_view text, std::size_t at) {
  constexpr std::array<std::string_view, 28> kDelimiters = {
      "\\{",      "{",        "\\}",      "}",        "\\|",        "|",          "[",
      "]",        "(",        ")",        "\\lgroup", "\\rgroup",   "\\lbrace",   "\\rbrace",
      "\\lbrack", "\\rbrack", "\\vert",   "\\lvert",  "\\rvert",    "\\lceil",    "\\rceil",
      "\\lfloor", "\\rfloor", "\\langle", "\\rangle", "\\llcorner", "\\lrcorner", "\\ulcorner"};
  for (const std::string_view command : {"\\left", "\\right", "\\mleft", "\\mright"}) {
    if (!at_is(text, at, command)) continue;
    const std::string_view rest = text.substr(at + command.size());
    for (const std::string_view delimiter : kDelimiters) {
      if (rest.starts_with(delimiter)) return command.size();
    }
  }
  return 0;
}

Replacement removal(std::string_view text, std::size_t at) {
  if (const std::size_t length = sizing_command(text, at)) return {length, ""};
  if (at_is(text, at, "\\mathrm{th}")) return {11, ""};
  if (at_is(text, at, "\\!")) return {skip_spaces(text, at + 2) - at, ""};
  if (at_is(text, at, "\\text")) {
    const std::size_t open = skip_spaces(text, at + 5);
    if (at_is(text, open, "{")) {
      const std::size_t close = skip_spaces(text, open + 1);
      if (at_is(text, close, "}")) return {close + 1 - at, ""};
    }
  }
  if (at_is(text, at, "\\$")) return {2, ""};
  if (text[at] == '$') return {1, ""};
  if ((text[at] == '"' || text[at] == '\'') && (at == 0 || text[at - 1] != '\\')) return {1, ""};
  if (at_is(text, at, "\\displaystyle")) return {13, ""};
  return {};
}

// "and", "or" with the comma and the space before them, outside words.
std::size_t conjunction(std::string_view text, std::size_t at, std::size_t behind_space) {
  if (at > 0 && is_letter(text[at - 1])) return 0;
  for (const std::string_view word : {"and", "or"}) {
    const std::size_t end = behind_space + word.size();
    if (at_is(text, behind_space, word) && (end >= text.size() || !is_letter(text[end]))) return end - at;
  }
  return 0;
}

std::size_t text_conjunction(std::string_view text, std::size_t at, std::size_t behind_space) {
  if (!at_is(text, behind_space, "\\text{")) return 0;
  const std::size_t word = skip_spaces(text, behind_space + 6);
  const std::size_t after = at_is(text, word, "and") ? word + 3 : at_is(text, word, "or") ? word + 2 : kNone;
  if (after == kNone) return 0;
  const std::size_t close = skip_spaces(text, after);
  return at_is(text, close, "}") ? close + 1 - at : 0;
}

Replacement percent_word(std::string_view text, std::size_t at, std::size_t behind_space) {
  for (const std::string_view word : {"percentage", "percent", "pct"}) {
    const std::size_t end = behind_space + word.size();
    if (at_is(text, behind_space, word) && word_edge(text, behind_space) && word_edge(text, end))
      return {end - at, "\\%"};
  }
  for (const std::string_view word : {"\\text{percentage}", "\\text{percent}", "\\text{pct}"}) {
    if (at_is(text, at, word)) return {word.size(), "%"};
  }
  return {};
}

// The rules in their order; the first that matches at a place is taken. `space_end` lies behind the white space at
// `at`.
Replacement rewriting(std::string_view text, std::size_t at, std::size_t space_end) {
  for (const std::string_view command :
       {"\\mathrm", "\\mathit", "\\mathbf", "\\textnormal", "\\textbf", "\\textit", "\\textrm"}) {
    if (at_is(text, at, command)) return {command.size(), "\\text"};
  }
  for (const std::string_view command : {"\\dfrac", "\\tfrac", "\\cfrac"}) {
    if (at_is(text, at, command)) return {command.size(), "\\frac"};
  }
  const std::size_t one_space = space_at(text, at);
  if (one_space > 0 && at_is(text, at + one_space, ".")) return {one_space + 1, " 0."};
  if (at_is(text, at, "{.")) return {2, "{0."};
  if (at_is(text, at, "~=")) return {2, "\\approx"};
  if (at_is(text, space_end, "{")) {
    const std::size_t comma = skip_spaces(text, space_end + 1);
    if (at_is(text, comma, ",")) {
      const std::size_t close = skip_spaces(text, comma + 1);
      if (at_is(text, close, "}")) return {close + 1 - at, ","};
    }
  }
  const std::size_t behind = text[at] == ',' ? skip_spaces(text, at + 1) : space_end;
  if (const std::size_t length = conjunction(text, at, behind)) return {length, ","};
  if (const std::size_t length = text_conjunction(text, at, behind)) return {length, ","};
  if (text[at] == '\\' && (at == 0 || text[at - 1] != '\\') && space_at(text, at + 1) > 0) {
    return {1 + space_at(text, at + 1), " "};
  }
  if (at_is(text, at, "infinity")) return {8, "\\infty"};
  if (at_is(text, at, "\\ldots")) return {6, " "};
  if (at_is(text, at, ",\\ldots")) return {7, " "};
  if (const Replacement percent = percent_word(text, at, space_end); percent.length > 0) return percent;
  if (at_is(text, at, "inf") && (at == 0 || text[at - 1] != '\\')) return {3, "\\infty"};
  if (at_is(text, at, " sqrt")) return {5, "\\sqrt"};
  return {};
}

template <class Rule>
std::string rewrite(std::string_view text, const Rule& rule) {
  std::string result;
  std::size_t space_end = 0;  // of the run of white space that holds `at`
  for (std::size_t at = 0; at < text.size();) {
    if (space_end <= at) space_end = skip_spaces(text, at);
    const Replacement replacement = rule(text, at, space_end);
    if (replacement.length > 0) {
      result += replacement.with;
      at += replacement.length;
    } else {
      result += text[at++];
    }
  }
  return result;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != kNone; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

std::string basic_latex(std::string text) {
  replace_all(text, "\\mathrm{T}", "T");
  replace_all(text, "\\mathrm{d}", "d");
  replace_all(text, "{\\rm d}", "d");
  replace_all(text, "\\left[\\begin{matrix}", "\\begin{bmatrix}");
  replace_all(text, "\\end{matrix}\\right]", "\\end{bmatrix}");
  text = rewrite(text, [](std::string_view all, std::size_t at, std::size_t) { return removal(all, at); });
  text = rewrite(text, rewriting);
  std::ranges::replace(text, '\n', ' ');
  std::ranges::replace(text, '\t', ' ');
  if (text.find("matrix") != kNone) return text;
  return rewrite(text, [](std::string_view all, std::size_t at, std::size_t) {
    const bool doubled = at_is(all, at, "\\\\") && at + 2 < all.size() && is_letter(all[at + 2]);
    return doubled ? Replacement{2, "\\"} : Replacement{};
  });
}

// --- units

// "5 \text{ cm}^2": from the first \text or \mbox on, where the text ends in a brace and at most an exponent.
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
  if (begin == kNone) return text;
  const std::string_view rest = strip(std::string_view(text).substr(0, begin));
  return rest.empty() ? text : std::string(rest);
}

// latex2sympy2_extended's list, '.' standing for any character as in its pattern.
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

// Where the text that is kept ends if a unit begins at `unit`: behind a digit, a closing brace, or the first of the
// spaces before it; kNone where none of them is there.
std::size_t end_before_unit(std::string_view text, std::size_t unit) {
  std::size_t end = unit;
  while (end > 0 && text[end - 1] == ' ') --end;
  if (end > 0 && (is_digit(text[end - 1]) || text[end - 1] == '}')) return end;
  return end < unit ? end + 1 : kNone;
}

std::string without_unit(const std::string& text) {
  std::string_view head = text;
  while (head.ends_with(' ')) head.remove_suffix(1);
  std::size_t shortest = kNone;
  for (const std::string_view unit : kUnits) {
    for (const std::string_view plural : {"", "s", "es"}) {
      if (!head.ends_with(plural)) continue;
      const std::string_view stem = head.substr(0, head.size() - plural.size());
      if (!ends_with_pattern(stem, unit)) continue;
      shortest = std::min(shortest, end_before_unit(head, stem.size() - unit.size()));
    }
  }
  return shortest == kNone || shortest == 0 ? text : text.substr(0, shortest);
}

// --- malformed operators

// The argument at `at`: a group in braces or one character. Its end; kNone where there is none.
std::size_t argument_end(std::string_view text, std::size_t at) {
  if (at >= text.size()) return kNone;
  if (text[at] != '{') return at + 1;
  const std::size_t close = closing_brace(text, at, text.size());
  return close == kNone ? kNone : close + 1;
}

std::string in_braces(std::string_view argument) {
  return argument.starts_with('{') ? std::string(argument) : "{" + std::string(argument) + "}";
}

// Rewrites "\frac12", "\frac1{2}", "\frac{1}2", "\sqrt2", "sqrt(2)", "^(2)" with braces.
std::string repair_operators(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const bool named = at_is(text, at, "\\sqrt");
    if (at_is(text, at, "\\frac")) {
      const std::size_t first = skip_spaces(text, at + 5);
      const std::size_t first_end = argument_end(text, first);
      if (first_end == kNone) return std::string(text);
      const std::size_t second = skip_spaces(text, first_end);
      std::size_t second_end = argument_end(text, second);
      if (second_end == kNone) return std::string(text);
      if (is_digit(text[first]) && is_digit(text[second])) {
        while (second_end < text.size() && is_digit(text[second_end])) ++second_end;
      }
      result += "\\frac" + in_braces(text.substr(first, first_end - first)) +
                in_braces(text.substr(second, second_end - second));
      at = second_end;
    } else if (named || at_is(text, at, "sqrt(") || at_is(text, at, "^(") || at_is(text, at, "^ (")) {
      const bool root = text[at] != '^';
      const std::size_t argument = skip_spaces(text, at + (named ? 5 : root ? 4 : 1));
      result += root ? "\\sqrt" : "^";
      at = argument;
      if (at_is(text, argument, "(")) {
        const std::size_t close = text.find(')', argument);
        if (close == kNone) continue;
        result += in_braces(text.substr(argument + 1, close - argument - 1));
        at = close + 1;
      } else if (argument < text.size() && text[argument] != '{' && text[argument] != '[') {
        result += in_braces(text.substr(argument, 1));
        at = argument + 1;
      }
    } else {
      result += text[at++];
    }
  }
  return result;
}

}  // namespace

std::string boxed_content(std::string_view text, BoxRule rule) {
  std::vector<std::string_view> contents;  // from the last to the first
  std::size_t limit = text.size();         // where the box that follows begins
  const std::vector<BoxCommand> commands = box_commands(text);
  for (const BoxCommand& command : commands | std::views::reverse) {
    const std::size_t open = skip_spaces(text, command.end);
    if (open >= limit) break;
    const std::size_t close = text[open] == '{' ? closing_brace(text, open, limit) : kNone;
    if (close == kNone) {  // never closed, or without braces: all that follows, if it is the last box
      if (contents.empty()) contents.push_back(text.substr(open));
      break;
    }
    const std::string_view content = strip(text.substr(open + 1, close - open - 1));
    if (rule == BoxRule::last && !contents.empty() &&
        !boxes_join(text.substr(close + 1, limit - close - 1), content, contents.back())) {
      break;
    }
    if (contents.empty() || contents.back() != content) contents.push_back(content);
    limit = command.begin;
  }
  if (contents.empty()) return std::string(text);
  std::string joined(contents.back());
  for (std::size_t i = contents.size() - 1; i-- > 0;) joined.append(",").append(contents[i]);
  return joined;
}

std::string normalize_latex(std::string_view raw, const NormalizeOptions& options) {
  std::string text = boxed_content(raw, options.boxes);
  if (text.size() > kLongestAnswer) return text;
  text = basic_latex(std::move(text));
  text = without_unit_command(text);
  text = without_unit(without_unit(text));
  if (options.repair) {
    if (text.starts_with('.')) text.insert(0, "0");
    text = repair_operators(text);
  }
  return std::string(strip(text));
}

}  // namespace hone
