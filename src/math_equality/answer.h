// Golds and answers: from text to meaning, and whether they agree. This is the interface that rewards and evaluation
// use.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "math_equality/dropped.h"
#include "math_equality/extraction.h"

namespace hone {

struct MathValue;

// An answer as it was found. Copies share the value.
struct MathAnswer {
  std::string text;                        // normalised LaTeX, or the number; may be empty
  std::shared_ptr<const MathValue> value;  // null where the text does not parse
  DroppedMarks dropped;                    // what is not in text and value; read by strict equality alone
  bool partial = false;                    // the value is a chain's last side; all of it does not parse
};

struct AnswerRule {
  ExtractionRule extraction;
  bool first_match_only = true;  // no second try where the first match does not parse
  bool repair = false;           // malformed operators ("\frac12")
  bool unit_in_prose = false;    // of "42 km", being all of the text, the unit is noted: for golds
};

// A match that parses is taken; where none does, the first match's text alone. Nothing where there is no match.
[[nodiscard]] std::optional<MathAnswer> parse_math(std::string_view text, const AnswerRule& rule);

// open-r1's rules. Golds: LaTeX, numbers and expressions, anchored or not, repaired, first match only.
[[nodiscard]] AnswerRule gold_rule();
[[nodiscard]] std::optional<MathAnswer> parse_gold(std::string_view text);
// Answers: LaTeX in a box or behind an anchor; boxes first; first match only, nothing repaired.
[[nodiscard]] AnswerRule answer_rule();
[[nodiscard]] std::optional<MathAnswer> parse_answer(std::string_view text);

// Whether an answer means the gold (Math-Verify 0.9): the values agree, or the texts are the same.
[[nodiscard]] bool equal(const MathAnswer& gold, const MathAnswer& answer);
// The same by stricter rules (docs/math-equality.md): never where equal() is false.
[[nodiscard]] bool strictly_equal(const MathAnswer& gold, const MathAnswer& answer);

}  // namespace hone
