// LaTeX between delimiters.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "math_equality/extraction.h"

namespace hone {

// One stretch of LaTeX: $$...$$, \[...\], $...$, \(...\), " [...] ", or a bare \frac{1}{2}.
struct LatexStretch {
  std::size_t end = 0;  // behind the closing delimiter, white space and a percent sign
  AnswerMatch::Piece piece;
};

// Answers for any place of one text what LaTeX begins there, in logarithmic time: the places of all delimiters are
// noted once.
class LatexDelimiters {
 public:
  explicit LatexDelimiters(std::string_view text);

  // With `boxed`, only a stretch that holds a box.
  [[nodiscard]] std::optional<LatexStretch> match(std::size_t at, bool boxed) const;
  // Up to six stretches joined by "and", "or" or a comma; behind the last, `end`.
  [[nodiscard]] std::optional<AnswerMatch> match_joined(std::size_t at, bool boxed) const;
  // The same, white space before it allowed.
  [[nodiscard]] std::optional<AnswerMatch> match_after_spaces(std::size_t at, bool boxed) const;
  // As skip_spaces, fast when asked again within one run.
  [[nodiscard]] std::size_t behind_spaces(std::size_t at) const;
  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  struct Content {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t behind = 0;
  };
  [[nodiscard]] std::optional<Content> delimited(std::size_t at) const;
  [[nodiscard]] std::optional<Content> bare_fraction(std::size_t at) const;
  [[nodiscard]] bool holds_box(const Content& content) const;
  // Where a stretch begins behind white space at `at`: " [...] " takes the last space itself.
  [[nodiscard]] std::optional<std::size_t> begin_after_spaces(std::size_t at, bool boxed) const;

  std::string_view text_;
  std::vector<std::size_t> dollars_;         // "$" without a backslash before it
  std::vector<std::size_t> double_dollars_;  // "$$"
  std::vector<std::size_t> brackets_;        // "\]"
  std::vector<std::size_t> parentheses_;     // "\)"
  std::vector<std::size_t> newlines_;
  std::vector<std::size_t> boxes_;   // "\boxed{"
  std::vector<std::size_t> braces_;  // "}"
  mutable std::size_t run_begin_ = 0;
  mutable std::size_t run_end_ = 0;
};

}  // namespace hone
