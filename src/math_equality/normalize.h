// Normalises the LaTeX of an answer before it is parsed, by the rules of latex2sympy2_extended 1.11
// (NormalizationConfig with basic_latex, units and boxed), which Math-Verify 0.9 applies.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "math_equality/boxes.h"
#include "math_equality/dropped.h"

namespace hone {

// Maximum length of an answer. A longer text is returned unchanged and does not parse.
inline constexpr std::size_t kLongestAnswer = 2048;  // bytes

struct NormalizeOptions {
  BoxRule boxes = BoxRule::kAll;
  bool repair = false;  // repair malformed operators ("\frac12", "\sqrt2", "^(2)") and a leading decimal point
};

struct NormalizedLatex {
  std::string text;
  DroppedMarks dropped;  // marks that normalisation has removed or that the parser skips
};
[[nodiscard]] NormalizedLatex normalize_latex(std::string_view text, const NormalizeOptions& options);

}  // namespace hone
