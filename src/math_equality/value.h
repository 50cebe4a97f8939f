// What an answer means.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "math_equality/expression.h"

namespace hone {

// A single expression, with how it was written, as far as equality depends on it.
struct MathScalar {
  MathTree value;
  bool number = false;   // one number: "3", "-1.5", "\frac{2}{3}", "2\frac{1}{2}"; not "2 \cdot 3"
  bool decimal = false;  // of a number or a percentage: written with a point
  bool percent = false;  // "50\%"; value is 1/2
  // Lower-cased letters of a symbol or of symbols side by side ("Evelyn", "\text{Evelyn}"); else empty.
  std::string letters;
  bool symbol = false;  // one symbol: "x", "\text{Evelyn}"
};

enum class MathRelation { equal, not_equal, less, less_equal, greater, greater_equal };

struct MathValue {
  enum class Kind {
    scalar,
    relation,  // items: left side, right side
    chain,     // items: relations that hold together, "1 < x < 2"
    set,       // items in any order
    tuple,
    interval,   // items: the ends
    set_union,  // items: two sets; so the next two
    intersection,
    difference,
    named_set,  // text: "naturals", "integers", "rationals", "reals", "complexes", "primes"
    matrix,     // items row by row, each a tuple
    opaque,     // well-formed, but beyond what is computed here: compared as text without spaces
  };
  Kind kind = Kind::scalar;
  MathScalar scalar;
  std::vector<MathValue> items;
  MathRelation relation = MathRelation::equal;
  bool left_open = false;
  bool right_open = false;
  std::string text;
};

[[nodiscard]] MathValue make_value(MathValue::Kind kind, std::vector<MathValue> items);
[[nodiscard]] MathValue make_value(MathScalar scalar);

// Reads normalised LaTeX with the grammar of latex2sympy2_extended 1.11, its derivatives, integrals, limits and matrix
// functions excepted: those become opaque, as does what grows too deep or too large. Nothing where the text does not
// parse. Depth and length are bounded.
[[nodiscard]] std::optional<MathValue> parse_latex(std::string_view text);
// Reads a plain arithmetic expression ("3 * (4 + 5)/2", "2^10") as Python would after replacing ^ by **.
[[nodiscard]] std::optional<MathValue> parse_arithmetic(std::string_view text);
// The same value in hundredths; nothing where it is no single number.
[[nodiscard]] std::optional<MathValue> as_percent(const MathValue& value);

// Whether an answer means the gold, by Math-Verify 0.9's rules; `strict`: also by ours, which refuse more.
[[nodiscard]] bool equal_values(const MathValue& gold, const MathValue& answer, bool strict = false);
// Whether a symbol or an unknown function is in it: the value is no constant.
[[nodiscard]] bool has_symbols(const MathValue& value);

}  // namespace hone
