// Sets of real numbers: finite unions of points and intervals whose ends are constants.
#pragma once

#include <optional>
#include <vector>

#include "math_equality/value.h"

namespace hone {

struct RealInterval {
  MathTree low;  // -infinity and infinity are open ends
  MathTree high;
  bool low_open = false;
  bool high_open = false;
};

// Disjoint, ascending, and no two that could be one.
using RealSet = std::vector<RealInterval>;

// Intervals, sets of numbers, their unions, intersections and differences, the empty set and the reals; and the
// solutions of relations, or chains of them, in one symbol of degree 1 or 2. Nothing for all else, and where the order
// of two ends cannot be told.
[[nodiscard]] std::optional<RealSet> real_set(const MathValue& value);

[[nodiscard]] bool same_real_set(const RealSet& a, const RealSet& b);

}  // namespace hone
