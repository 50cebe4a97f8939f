// Separates the unit from the value of an answer.
#pragma once

#include <string>

namespace hone {

struct UnitSplit {
  std::string value;
  std::string unit;  // removed text; empty if there is no unit
};

// Splits texts such as "5 \text{ cm}^2" and "5 miles" by the rules of latex2sympy2_extended: a text that ends in \text
// or \mbox is cut at the first of these commands; then the longest known unit at the end is removed, twice.
[[nodiscard]] UnitSplit split_units(const std::string& text);

}  // namespace hone
