#include "math_equality/normalize.h"

#include <algorithm>
#include <array>

#include "core/characters.h"
#include "math_equality/units.h"

namespace hone {
namespace {

// --- Replacements. A rule returns the number of bytes to replace at an offset, and the replacement.

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

// Returns the length of \left, \right, \mleft or \mright before a delimiter; 0 if there is none.
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

// Returns the length of "and" or "or", including the comma and the space before it; 0 if it is part of a word.
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
  const std::size_t after = at_is(text, word, "and")  ? word + 3
                            : at_is(text, word, "or") ? word + 2
                                                      : std::string_view::npos;
  if (after == std::string_view::npos) return 0;
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

// Applies the first rule that matches at `at`, in the order of latex2sympy2_extended. `space_end` is the offset after
// the white space at `at`.
Replacement rewriting(std::string_view text, std::size_t at, std::size_t space_end) {
  for (const std::string_view command :
       {"\\mathrm", "\\mathit", "\\mathbf", "\\textnormal", "\\textbf", "\\textit", "\\textrm"}) {
    if (at_is(text, at, command)) return {command.size(), "\\text"};
  }
  for (const std::string_view command : {"\\dfrac", "\\tfrac", "\\cfrac"}) {
    if (at_is(text, at, command)) return {command.size(), "\\frac"};
  }
  const std::size_t one_space = white_space_length(text, at);
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
  if (text[at] == '\\' && (at == 0 || text[at - 1] != '\\') && white_space_length(text, at + 1) > 0) {
    return {1 + white_space_length(text, at + 1), " "};
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
  std::size_t space_end = 0;  // end of the run of white space that contains `at`
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
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, at + to.size()))
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
  if (text.find("matrix") != std::string_view::npos) return text;
  return rewrite(text, [](std::string_view all, std::size_t at, std::size_t) {
    const bool doubled = at_is(all, at, "\\\\") && at + 2 < all.size() && is_letter(all[at + 2]);
    return doubled ? Replacement{2, "\\"} : Replacement{};
  });
}

// --- Malformed operators

// Returns the end of the argument at `at`, a group in braces or one character; npos if there is none.
std::size_t argument_end(std::string_view text, std::size_t at) {
  if (at >= text.size()) return std::string_view::npos;
  if (text[at] != '{') return at + 1;
  const std::size_t close = closing_brace(text, at, text.size());
  return close == std::string_view::npos ? std::string_view::npos : close + 1;
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
      if (first_end == std::string_view::npos) return std::string(text);
      const std::size_t second = skip_spaces(text, first_end);
      std::size_t second_end = argument_end(text, second);
      if (second_end == std::string_view::npos) return std::string(text);
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
        if (close == std::string_view::npos) continue;
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

NormalizedLatex normalize_latex(std::string_view raw, const NormalizeOptions& options) {
  std::string text = boxed_content(raw, options.boxes);
  if (text.size() > kLongestAnswer) return {std::move(text), {}};
  DroppedMarks dropped;
  note_signs(dropped, text);
  text = basic_latex(std::move(text));
  note_subscripts(dropped, text);
  auto [value, unit] = split_units(text);
  note_unit(dropped, unit);
  text = std::move(value);
  if (options.repair) {
    if (text.starts_with('.')) text.insert(0, "0");
    text = repair_operators(text);
  }
  return {std::string(strip(text)), std::move(dropped)};
}

}  // namespace hone
