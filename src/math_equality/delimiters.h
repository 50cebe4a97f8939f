// Finds LaTeX between delimiters in a text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "math_equality/extraction.h"

namespace hone {

// LaTeX in delimiters ($$...$$, \[...\], $...$, \(...\), " [...] ") or a bare \frac{1}{2}.
struct LatexStretch {
  std::size_t end = 0;  // offset after the closing delimiter, white space and a percent sign
  AnswerMatch::Piece piece;
};

// Finds the LaTeX that begins at any offset of one text, in logarithmic time. The constructor records the offsets of
// all delimiters.
class LatexDelimiters {
 public:
  explicit LatexDelimiters(std::string_view text);

  // Matches one stretch of LaTeX that begins at `at`; with `boxed`, only if it contains a box.
  [[nodiscard]] std::optional<LatexStretch> match(std::size_t at, bool boxed) const;
  // Matches up to six stretches joined by "and", "or" or a comma.
  [[nodiscard]] std::optional<AnswerMatch> match_joined(std::size_t at, bool boxed) const;
  // Like match_joined(), after optional white space.
  [[nodiscard]] std::optional<AnswerMatch> match_after_spaces(std::size_t at, bool boxed) const;
  // Returns the offset after the white space at `at`, like skip_spaces(). Repeated calls in one run of white space are
  // fast.
  [[nodiscard]] std::size_t behind_spaces(std::size_t at) const;
  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  // Offsets of the content between two delimiters.
  struct Content {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t behind = 0;  // after the closing delimiter
  };
  [[nodiscard]] std::optional<Content> delimited(std::size_t at) const;
  [[nodiscard]] std::optional<Content> bare_fraction(std::size_t at) const;
  [[nodiscard]] bool holds_box(const Content& content) const;
  // Returns the offset at which a stretch begins after the white space at `at`. A stretch " [...] " includes the last
  // space.
  [[nodiscard]] std::optional<std::size_t> begin_after_spaces(std::size_t at, bool boxed) const;

  std::string_view text_;
  // Offsets in the text, ascending:
  std::vector<std::size_t> dollars_;         // "$" without a backslash before it
  std::vector<std::size_t> double_dollars_;  // "$$"
  std::vector<std::size_t> brackets_;        // "\]"
  std::vector<std::size_t> parentheses_;     // "\)"
  std::vector<std::size_t> newlines_;
  std::vector<std::size_t> boxes_;   // "\boxed{"
  std::vector<std::size_t> braces_;  // "}"
  // Run of white space that behind_spaces() found last:
  mutable std::size_t run_begin_ = 0;
  mutable std::size_t run_end_ = 0;
};

}  // namespace hone
