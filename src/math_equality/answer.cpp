#include "math_equality/answer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/characters.h"
#include "math_equality/normalize.h"
#include "math_equality/plain_numbers.h"
#include "math_equality/value.h"

namespace hone {
namespace {

// Result of parsing one match.
struct Reading {
  std::string text;
  std::optional<MathValue> value;
  DroppedMarks dropped = {};
  bool partial = false;
};

Reading read_number(const AnswerMatch::Piece& piece) {
  Reading reading{canonical_number(piece.text), std::nullopt};
  reading.value = parse_arithmetic(reading.text);
  // parse_arithmetic() reads a minus sign as an operator; here it is part of the number.
  if (reading.value) {
    reading.value->scalar.number = true;
    reading.value->scalar.decimal = reading.text.find('.') != std::string::npos;
    if (piece.percent) reading.value = as_percent(*reading.value);
  }
  return reading;
}

// Returns the last side of a chain of equations with more than two sides that is not a list; otherwise the whole text.
std::string_view last_side(std::string_view latex) {
  if (latex.find_first_of(",;") != std::string_view::npos) return latex;
  std::size_t sides = 1;
  std::size_t last = 0;
  for (std::size_t i = 0; i < latex.size(); ++i) {
    const bool relation = i > 0 && std::string_view("\\<!>").find(latex[i - 1]) != std::string_view::npos;
    if (latex[i] != '=' || relation) continue;
    ++sides;
    last = i + 1;
  }
  return sides > 2 ? latex.substr(last) : latex;
}

Reading read_latex(const AnswerMatch::Piece& piece, const NormalizeOptions& options) {
  NormalizedLatex latex = normalize_latex(piece.text, options);
  Reading reading{std::move(latex.text), std::nullopt, std::move(latex.dropped)};
  if (reading.text.size() > kLongestAnswer) return reading;
  reading.value = parse_latex(reading.text);
  if (!reading.value) {
    if (const std::string_view last = last_side(reading.text); last != reading.text) {
      reading.value = parse_latex(last);
      reading.partial = true;
    }
  }
  if (reading.value && piece.percent) reading.value = as_percent(*reading.value);
  return reading;
}

// Joins several pieces that all parse to one set, merging the sets among them. If a piece does not parse, only the
// first one counts.
Reading read_pieces(const AnswerMatch& match, bool repair) {
  const BoxRule boxes = match.kind == AnswerMatch::Kind::kBareBox ? BoxRule::kLast : BoxRule::kAll;
  std::vector<Reading> readings;
  readings.reserve(match.pieces.size());
  for (const AnswerMatch::Piece& piece : match.pieces) readings.push_back(read_latex(piece, {boxes, repair}));
  if (readings.size() == 1) return std::move(readings[0]);
  Reading all;
  MathValue joined;
  joined.kind = MathValue::Kind::kSet;
  for (const Reading& reading : readings) {
    if (!reading.value) return readings[0];
    if (&reading != &readings[0]) all.text += " and ";
    all.text += reading.text;
    all.dropped.insert(reading.dropped.begin(), reading.dropped.end());
    all.partial |= reading.partial;
    const MathValue& value = *reading.value;
    if (value.kind == MathValue::Kind::kSet) {
      std::ranges::copy(value.items, std::back_inserter(joined.items));
    } else {
      joined.items.push_back(value);
    }
  }
  all.value = std::move(joined);
  return all;
}

Reading read_match(const AnswerMatch& match, bool repair) {
  switch (match.kind) {
    case AnswerMatch::Kind::kNumber:
      return read_number(match.pieces[0]);
    case AnswerMatch::Kind::kExpression: {
      const std::string_view text = match.pieces[0].text;
      return {std::string(text), parse_arithmetic(text)};
    }
    case AnswerMatch::Kind::kLatex:
    case AnswerMatch::Kind::kBareBox:
      break;
  }
  return read_pieces(match, repair);
}

Reading read(std::string_view text, const AnswerMatch& match, const AnswerRule& rule) {
  Reading reading = read_match(match, rule.repair);
  const bool plain = match.kind == AnswerMatch::Kind::kNumber || match.kind == AnswerMatch::Kind::kExpression;
  if (!plain || !rule.unit_in_prose) return reading;
  const std::string_view piece = match.pieces[0].text;
  const auto begin = static_cast<std::size_t>(piece.data() - text.data());
  note_around_number(reading.dropped, text.substr(0, begin), text.substr(std::max(match.end, begin + piece.size())));
  return reading;
}

}  // namespace

std::optional<MathAnswer> parse_math(std::string_view text, const AnswerRule& rule) {
  std::optional<MathAnswer> fallback;
  for (const AnswerMatch& match : find_answers(text, rule.extraction)) {
    Reading reading = read(text, match, rule);
    if (!fallback && !reading.text.empty()) fallback = MathAnswer{reading.text, nullptr, reading.dropped, false};
    if (reading.value) {
      const std::string& shown = fallback ? fallback->text : reading.text;
      return MathAnswer{shown, std::make_shared<const MathValue>(std::move(*reading.value)), std::move(reading.dropped),
                        reading.partial};
    }
    if (rule.first_match_only) break;
  }
  return fallback;
}

AnswerRule gold_rule() {
  return {.extraction = {.expressions = true, .unanchored = true, .boxed_priority = 50},
          .repair = true,
          .unit_in_prose = true};
}
std::optional<MathAnswer> parse_gold(std::string_view text) { return parse_math(text, gold_rule()); }

AnswerRule answer_rule() { return {.extraction = {.boxed_priority = 0}}; }
std::optional<MathAnswer> parse_answer(std::string_view text) { return parse_math(text, answer_rule()); }

bool equal(const MathAnswer& gold, const MathAnswer& answer) {
  if (gold.value && answer.value && equal_values(*gold.value, *answer.value)) return true;
  const std::string_view left = strip(gold.text);
  return !left.empty() && left == strip(answer.text);
}

bool strictly_equal(const MathAnswer& gold, const MathAnswer& answer) {
  if (!equal(gold, answer)) return false;
  const std::string_view text = strip(gold.text);
  if (gold.dropped == answer.dropped && !text.empty() && text == strip(answer.text)) return true;
  if (!gold.value || !answer.value || answer.partial) return false;
  if (gold.dropped != answer.dropped &&
      (has_symbols(*gold.value) || !std::ranges::includes(gold.dropped, answer.dropped)))
    return false;
  return equal_values(*gold.value, *answer.value, true);
}

}  // namespace hone
