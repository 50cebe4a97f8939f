// Sets of real numbers that are finite unions of points and intervals with constant ends.
#pragma once

#include <optional>
#include <vector>

#include "math_equality/value.h"

namespace hone {

struct RealInterval {
  MathTree low;  // infinite ends are open
  MathTree high;
  bool low_open = false;
  bool high_open = false;
};

// Disjoint intervals in ascending order; adjacent intervals are merged.
using RealSet = std::vector<RealInterval>;

// Converts a value to a set. Supports intervals, sets of numbers, their unions, intersections and differences, the
// empty set, the reals, and the solutions of relations and chains of relations of degree 1 or 2 in one symbol. Returns
// nothing for other values and if the order of two ends cannot be decided.
[[nodiscard]] std::optional<RealSet> real_set(const MathValue& value);

[[nodiscard]] bool same_real_set(const RealSet& a, const RealSet& b);

}  // namespace hone
