// The tokens of LaTeX mathematics.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct MathToken {
  enum class Kind {
    number,       // digits with at most one point; "1.5E3" too
    percentage,   // a number with % behind it; text without the sign
    letter,       // one letter, or "dx"
    command,      // "\frac", "\pi", "\\", "\{"
    named,        // a command with its argument taken as a name: "\text{Evelyn}"; text is the name
    named_set,    // "\mathbb{R}"; text is "reals"
    environment,  // "\begin{pmatrix}" as "begin", "\end{...}" as "end"
    punctuation,  // any other character
  };
  Kind kind;
  std::string text;

  [[nodiscard]] bool is(std::string_view other) const {
    return (kind == Kind::command || kind == Kind::punctuation || kind == Kind::environment) && text == other;
  }
};

// Nothing where a character belongs to no token or a brace is missing.
[[nodiscard]] std::optional<std::vector<MathToken>> tokenize_latex(std::string_view text);

}  // namespace hone
