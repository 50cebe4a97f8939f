// Finds answers in a text with the patterns of Math-Verify 0.9 (parser.py), implemented by hand in linear time.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace hone {

struct ExtractionRule {
  bool expressions = false;  // also find plain numbers and arithmetic, not only LaTeX in delimiters and boxes
  bool unanchored = false;   // also find answers that are not boxed and have no anchor such as "final answer is"
  int boxed_priority = 50;   // priority of boxes (see AnswerMatch); negative: do not search for boxes
};

// Candidate answer: LaTeX (up to six pieces joined by "and", "or" or commas), a bare box, a number or an expression.
struct AnswerMatch {
  enum class Kind { kLatex, kBareBox, kNumber, kExpression };
  struct Piece {
    std::string_view text;
    bool percent = false;  // a percent sign follows
  };
  // Lower values are tried first. By anchor: "final answer is X. I hope" 0, "final answer ... is" 50, "answer:" 100,
  // "answer" 200, none 300.
  int priority = 0;
  Kind kind = Kind::kLatex;
  std::size_t begin = 0;  // offset of the match in the text, including its anchor
  std::size_t end = 0;
  std::vector<Piece> pieces;
};

// Returns all matches in the order in which they are tried: by priority, then the rightmost end, then the leftmost
// begin, then LaTeX before expressions. The views point into `text`.
[[nodiscard]] std::vector<AnswerMatch> find_answers(std::string_view text, const ExtractionRule& rule);

}  // namespace hone
