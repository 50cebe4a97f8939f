// Units behind an answer.
#pragma once

#include <string>

namespace hone {

// "5 \text{ cm}^2" and "5 miles" parted from their units, by latex2sympy2_extended's rules: a text is cut from its
// first
// \text or \mbox on where it ends in one, and of the listed words the longest at the end goes, twice.
struct UnitSplit {
  std::string value;
  std::string unit;  // what went, as it was written; empty where nothing did
};
[[nodiscard]] UnitSplit split_units(const std::string& text);

}  // namespace hone
