// The text of an answer, as LaTeX, brought to the form that the parser reads: the rules of latex2sympy2_extended 1.11
// (NormalizationConfig with basic_latex, units and boxed), which Math-Verify 0.9 applies.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "math_equality/boxes.h"
#include "math_equality/dropped.h"

namespace hone {

// Text longer than this is no answer: it is left as it is, and does not parse.
inline constexpr std::size_t kLongestAnswer = 2048;  // bytes

struct NormalizeOptions {
  BoxRule boxes = BoxRule::all;
  bool repair = false;  // malformed operators ("\frac12", "\sqrt2", "^(2)") and a leading point: for golds
};

struct NormalizedLatex {
  std::string text;
  DroppedMarks dropped;
};
[[nodiscard]] NormalizedLatex normalize_latex(std::string_view text, const NormalizeOptions& options);

}  // namespace hone
