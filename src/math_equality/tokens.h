// Splits LaTeX mathematics into tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct MathToken {
  enum class Kind {
    kNumber,       // digits with at most one decimal point, or "1.5E3"
    kPercentage,   // a number followed by %; text without the sign
    kLetter,       // one letter, or "dx"
    kCommand,      // "\frac", "\pi", "\\", "\{"
    kNamed,        // a command whose argument is a name: "\text{Evelyn}"; text: "evelyn"
    kNamedSet,     // "\mathbb{R}"; text: "reals"
    kEnvironment,  // "\begin{pmatrix}", "\end{pmatrix}"; text: "begin pmatrix", "end pmatrix"
    kPunctuation,  // any other character
  };
  Kind kind;
  std::string text;

  [[nodiscard]] bool is(std::string_view other) const {
    return (kind == Kind::kCommand || kind == Kind::kPunctuation || kind == Kind::kEnvironment) && text == other;
  }
};

// Returns the tokens of a text; nothing if a character belongs to no token or if a brace is missing.
[[nodiscard]] std::optional<std::vector<MathToken>> tokenize_latex(std::string_view text);

}  // namespace hone
