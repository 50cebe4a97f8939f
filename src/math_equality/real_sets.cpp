#include "math_equality/real_sets.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "math_equality/algebra.h"

namespace hone {
namespace {

using Kind = MathValue::Kind;

constexpr std::size_t kMostEnds = 64;

struct Undecided {};

int order(const MathTree& a, const MathTree& b) {
  const auto result = compare_values(a, b);
  if (!result) throw Undecided();
  return *result;
}

RealSet all_reals() { return {{negative_tree(infinity_tree()), infinity_tree(), true, true}}; }

// Cells into which the finite ends of two sets divide the real line: gap 0, point 0, gap 1, point 1, ..., last gap. A
// set is a union of cells, so set operations work on one flag per cell.
class Cells {
 public:
  void add(const RealSet& set) {
    for (const RealInterval& interval : set) {
      for (const MathTree& end : {interval.low, interval.high}) {
        if (!end->has_infinity) add(end);
      }
    }
  }

  // Returns one flag per cell: true if the cell is in the set.
  [[nodiscard]] std::vector<bool> members(const RealSet& set) const {
    std::vector<bool> cells(2 * ends_.size() + 1, false);
    for (const RealInterval& interval : set) {
      std::size_t first = interval.low->has_infinity ? 0 : cell_of(interval.low) + (interval.low_open ? 1 : 0);
      const std::size_t behind =
          interval.high->has_infinity ? cells.size() : cell_of(interval.high) + (interval.high_open ? 0 : 1);
      for (; first < behind; ++first) cells[first] = true;
    }
    return cells;
  }

  [[nodiscard]] RealSet set_of(const std::vector<bool>& cells) const {
    RealSet set;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!cells[i]) continue;
      std::size_t last = i;
      while (last + 1 < cells.size() && cells[last + 1]) ++last;
      RealInterval interval{negative_tree(infinity_tree()), infinity_tree(), i % 2 == 0, last % 2 == 0};
      if (i > 0) interval.low = ends_[(i - 1) / 2];
      if (last + 1 < cells.size()) interval.high = ends_[last / 2];
      set.push_back(std::move(interval));
      i = last;
    }
    return set;
  }

 private:
  void add(const MathTree& end) {
    std::size_t place = 0;
    for (; place < ends_.size(); ++place) {
      const int sign = order(end, ends_[place]);
      if (sign == 0) return;
      if (sign < 0) break;
    }
    if (ends_.size() == kMostEnds) throw Undecided();
    ends_.insert(ends_.begin() + static_cast<std::ptrdiff_t>(place), end);
  }
  [[nodiscard]] std::size_t cell_of(const MathTree& end) const {
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      if (order(end, ends_[i]) == 0) return 2 * i + 1;
    }
    throw Undecided();
  }

  std::vector<MathTree> ends_;  // ascending
};

template <class Keep>
RealSet combined(const RealSet& a, const RealSet& b, const Keep& keep) {
  Cells cells;
  cells.add(a);
  cells.add(b);
  std::vector<bool> left = cells.members(a);
  const std::vector<bool> right = cells.members(b);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = keep(left[i], right[i]);
  return cells.set_of(left);
}

RealSet united(const RealSet& a, const RealSet& b) {
  return combined(a, b, [](bool x, bool y) { return x || y; });
}
RealSet common(const RealSet& a, const RealSet& b) {
  return combined(a, b, [](bool x, bool y) { return x && y; });
}
RealSet without(const RealSet& a, const RealSet& b) {
  return combined(a, b, [](bool x, bool y) { return x && !y; });
}

RealSet point(const MathTree& value) {
  (void)order(value, value);  // a real constant
  if (value->has_symbols || value->has_infinity || !compare_values(value, number_tree(0))) throw Undecided();
  return {{value, value, false, false}};
}

// --- Relations

// Real roots of a polynomial of degree 1 or 2.
struct Roots {
  std::vector<MathTree> values;  // ascending
  int leading = 0;               // sign of the leading coefficient
  bool doubled = false;          // one double root
};

Roots roots_of(const MathTree& polynomial, const std::string& symbol) {
  const auto degree = degree_in(polynomial, symbol);
  if (!degree) throw Undecided();
  const auto at = [&](int x) { return substituted(polynomial, symbol, number_tree(x)); };
  const MathTree c = at(0);
  const MathTree half_sum = quotient_tree(sum_tree(at(1), at(-1)), number_tree(2));
  const MathTree a = difference_tree(half_sum, c);
  const MathTree b = quotient_tree(difference_tree(at(1), at(-1)), number_tree(2));
  const MathTree zero = number_tree(0);
  const int square = *degree < 2 ? 0 : order(a, zero);
  if (square == 0) {
    const int slope = order(b, zero);
    if (slope == 0) throw Undecided();
    return {{negative_tree(quotient_tree(c, b))}, slope, false};
  }
  const MathTree discriminant = difference_tree(product_tree(b, b), product_tree(number_tree(4), product_tree(a, c)));
  const int kind = order(discriminant, zero);
  if (kind < 0) return {{}, square, false};
  const MathTree twice = product_tree(number_tree(2), a);
  const MathTree root = root_tree(discriminant);
  const MathTree minus = quotient_tree(difference_tree(negative_tree(b), root), twice);
  if (kind == 0) return {{minus}, square, true};
  const MathTree plus = quotient_tree(sum_tree(negative_tree(b), root), twice);
  return {square > 0 ? std::vector{minus, plus} : std::vector{plus, minus}, square, false};
}

RealSet solutions(const MathValue& relation) {
  if (relation.items[0].kind != Kind::kScalar || relation.items[1].kind != Kind::kScalar) throw Undecided();
  const MathTree& left = relation.items[0].scalar.value;
  const MathTree& right = relation.items[1].scalar.value;
  if (left->has_infinity || right->has_infinity) throw Undecided();
  const MathTree difference = difference_tree(left, right);
  const std::vector<std::string> symbols = symbols_of(difference);
  if (symbols.size() != 1) throw Undecided();
  const Roots roots = roots_of(difference, symbols[0]);
  RealSet zeros;
  for (const MathTree& root : roots.values) zeros = united(zeros, point(root));
  if (relation.relation == MathRelation::kEqual) return zeros;
  if (relation.relation == MathRelation::kNotEqual) return without(all_reals(), zeros);
  const bool greater = relation.relation == MathRelation::kGreater || relation.relation == MathRelation::kGreaterEqual;
  // To the right of all roots the polynomial has the sign of its leading coefficient. The sign changes at simple roots.
  RealSet set;
  int sign = roots.leading;
  MathTree high = infinity_tree();
  for (std::size_t i = roots.values.size() + 1; i-- > 0;) {
    const MathTree low = i == 0 ? negative_tree(infinity_tree()) : roots.values[i - 1];
    if ((sign > 0) == greater) set = united(set, {{low, high, true, true}});
    high = low;
    if (!roots.doubled) sign = -sign;
  }
  const bool included =
      relation.relation == MathRelation::kGreaterEqual || relation.relation == MathRelation::kLessEqual;
  return included ? united(set, zeros) : set;
}

RealSet set_of(const MathValue& value) {
  switch (value.kind) {
    case Kind::kInterval: {
      if (value.items[0].kind != Kind::kScalar || value.items[1].kind != Kind::kScalar) throw Undecided();
      RealInterval interval{value.items[0].scalar.value, value.items[1].scalar.value, value.left_open,
                            value.right_open};
      const int sign = order(interval.low, interval.high);
      if (sign > 0 || (sign == 0 && (interval.low_open || interval.high_open))) return {};
      interval.low_open |= interval.low->has_infinity;
      interval.high_open |= interval.high->has_infinity;
      return {interval};
    }
    case Kind::kSet: {
      RealSet set;
      for (const MathValue& item : value.items) {
        if (item.kind != Kind::kScalar) throw Undecided();
        set = united(set, point(item.scalar.value));
      }
      return set;
    }
    case Kind::kSetUnion:
      return united(set_of(value.items[0]), set_of(value.items[1]));
    case Kind::kIntersection:
      return common(set_of(value.items[0]), set_of(value.items[1]));
    case Kind::kDifference:
      return without(set_of(value.items[0]), set_of(value.items[1]));
    case Kind::kNamedSet:
      if (value.text == "reals") return all_reals();
      break;
    case Kind::kRelation:
      return solutions(value);
    case Kind::kChain: {
      RealSet set = all_reals();
      for (const MathValue& item : value.items) set = common(set, solutions(item));
      return set;
    }
    default:
      break;
  }
  throw Undecided();
}

}  // namespace

std::optional<RealSet> real_set(const MathValue& value) {
  try {
    return set_of(value);
  } catch (const Undecided&) {
    return std::nullopt;
  }
}

bool same_real_set(const RealSet& a, const RealSet& b) {
  const auto same = [](const RealInterval& x, const RealInterval& y) {
    return x.low_open == y.low_open && x.high_open == y.high_open && same_value(x.low, y.low) &&
           same_value(x.high, y.high);
  };
  return std::ranges::equal(a, b, same);
}

}  // namespace hone
