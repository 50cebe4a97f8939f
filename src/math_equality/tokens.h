// Splits LaTeX mathematics into tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct MathToken {
  enum class Kind {
    number,       // digits with at most one decimal point, or "1.5E3"
    percentage,   // a number followed by %; text without the sign
    letter,       // one letter, or "dx"
    command,      // "\frac", "\pi", "\\", "\{"
    named,        // a command whose argument is a name: "\text{Evelyn}"; text: "evelyn"
    named_set,    // "\mathbb{R}"; text: "reals"
    environment,  // "\begin{pmatrix}", "\end{pmatrix}"; text: "begin pmatrix", "end pmatrix"
    punctuation,  // any other character
  };
  Kind kind;
  std::string text;

  [[nodiscard]] bool is(std::string_view other) const {
    return (kind == Kind::command || kind == Kind::punctuation || kind == Kind::environment) && text == other;
  }
};

// Returns the tokens of a text; nothing if a character belongs to no token or if a brace is missing.
[[nodiscard]] std::optional<std::vector<MathToken>> tokenize_latex(std::string_view text);

}  // namespace hone
