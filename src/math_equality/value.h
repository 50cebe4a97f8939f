// Parsed values of answers: numbers, expressions, relations, sets, intervals, tuples and matrices.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "math_equality/expression.h"

namespace hone {

// Single expression and the properties of its notation on which equality depends.
struct MathScalar {
  MathTree value;
  bool number = false;   // one number: "3", "-1.5", "\frac{2}{3}", "2\frac{1}{2}"; not "2 \cdot 3"
  bool decimal = false;  // a number or a percentage that is written with a decimal point
  bool percent = false;  // "50\%"; the value is 1/2
  // Lower-case name of a symbol, or the joined names of adjacent symbols ("Evelyn", "\text{Evelyn}"); otherwise empty.
  std::string letters;
  bool symbol = false;  // one symbol: "x", "\text{Evelyn}"
};

enum class MathRelation { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

struct MathValue {
  enum class Kind {
    kScalar,
    kRelation,  // items: left side, right side
    kChain,     // items: relations that hold together, "1 < x < 2"
    kSet,       // items in any order
    kTuple,
    kInterval,      // items: the ends
    kSetUnion,      // items: two sets
    kIntersection,  // items: two sets
    kDifference,    // items: two sets
    kNamedSet,      // text: "naturals", "integers", "rationals", "reals", "complexes", "primes"
    kMatrix,        // items: rows, each a tuple
    kOpaque,        // well-formed but not supported: compared as text without spaces
  };
  Kind kind = Kind::kScalar;
  MathScalar scalar;
  std::vector<MathValue> items;
  MathRelation relation = MathRelation::kEqual;
  bool left_open = false;
  bool right_open = false;
  std::string text;
};

[[nodiscard]] MathValue make_value(MathValue::Kind kind, std::vector<MathValue> items);
[[nodiscard]] MathValue make_value(MathScalar scalar);

// Parses normalised LaTeX with the grammar of latex2sympy2_extended 1.11. Derivatives, integrals, limits, matrix
// functions and expressions that are too large or nested too deeply become `opaque`. Returns nothing if the text is
// malformed.
[[nodiscard]] std::optional<MathValue> parse_latex(std::string_view text);
// Parses a plain arithmetic expression ("3 * (4 + 5)/2", "2^10") as Python does after replacing ^ by **.
[[nodiscard]] std::optional<MathValue> parse_arithmetic(std::string_view text);
// Returns the value divided by 100, as a percentage; nothing if it is not a single number.
[[nodiscard]] std::optional<MathValue> as_percent(const MathValue& value);

// Returns true if the answer equals the gold answer by the rules of Math-Verify 0.9 and, with `strict`, also by the
// strict rules, which accept less.
[[nodiscard]] bool equal_values(const MathValue& gold, const MathValue& answer, bool strict = false);
// Returns true if the value contains a symbol or an unknown function and so is not a constant.
[[nodiscard]] bool has_symbols(const MathValue& value);

}  // namespace hone
