// Where an answer stands in a text: the patterns of Math-Verify 0.9 (parser.py), matched by hand in linear time.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace hone {

struct ExtractionRule {
  bool expressions = false;  // plain numbers and arithmetic too, not only LaTeX in delimiters and boxes
  bool unanchored = false;   // without "final answer is", "answer" or a box before it
  int boxed_priority = 50;
};

// One place: LaTeX (up to six pieces joined by "and", "or", commas), a bare box, a number or an expression.
struct AnswerMatch {
  enum class Kind { latex, bare_box, number, expression };
  struct Piece {
    std::string_view text;
    bool percent = false;
  };
  int priority = 0;  // "final answer is X. I hope" 0, "final answer ... is" 50, "answer:" 100, "answer" 200, none 300
  Kind kind = Kind::latex;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<Piece> pieces;
};

// All matches in the order in which they are tried: by priority; then the rightmost end; then the leftmost start; then
// LaTeX before expressions. The views point into `text`.
[[nodiscard]] std::vector<AnswerMatch> find_answers(std::string_view text, const ExtractionRule& rule);

}  // namespace hone
