// Parses gold answers and the answers of completions, and decides whether they are equal. This is the interface for
// rewards and evaluation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "math_equality/dropped.h"
#include "math_equality/extraction.h"

namespace hone {

struct MathValue;

// Answer that was found in a text. Copies share the value.
struct MathAnswer {
  std::string text;                        // normalised LaTeX, or the number; may be empty
  std::shared_ptr<const MathValue> value;  // null if the text does not parse
  DroppedMarks dropped;                    // marks that `text` and `value` lack; used by strict equality only
  bool partial = false;                    // the whole text does not parse: the value is the last side of a chain
};

struct AnswerRule {
  ExtractionRule extraction;
  bool first_match_only = true;  // do not try further matches if the first one does not parse
  bool repair = false;           // repair malformed operators ("\frac12")
  bool unit_in_prose = false;    // record the unit of a text such as "42 km" (for gold answers)
};

// Finds the candidate answers of a text and returns the first one that parses. If none does, returns the first
// candidate without a value. Returns nothing if there is no candidate.
[[nodiscard]] std::optional<MathAnswer> parse_math(std::string_view text, const AnswerRule& rule);

// Rules of open-r1 for gold answers: LaTeX, numbers and expressions, with or without an anchor such as "answer:";
// malformed operators are repaired; first match only.
[[nodiscard]] AnswerRule gold_rule();
[[nodiscard]] std::optional<MathAnswer> parse_gold(std::string_view text);
// Rules of open-r1 for answers of completions: LaTeX in a box or after an anchor; boxes first; no repair; first match
// only.
[[nodiscard]] AnswerRule answer_rule();
[[nodiscard]] std::optional<MathAnswer> parse_answer(std::string_view text);

// Returns true if the answer equals the gold answer by the rules of Math-Verify 0.9: the values or the texts are equal.
[[nodiscard]] bool equal(const MathAnswer& gold, const MathAnswer& answer);
// Like equal(), with additional rules (docs/math-equality.md). Returns true only if equal() does.
[[nodiscard]] bool strictly_equal(const MathAnswer& gold, const MathAnswer& answer);

}  // namespace hone
