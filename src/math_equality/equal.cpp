#include <algorithm>
#include <cstddef>

#include "math_equality/algebra.h"
#include "math_equality/real_sets.h"
#include "math_equality/strict.h"
#include "math_equality/value.h"

namespace hone {
namespace {

using Kind = MathValue::Kind;

constexpr int kPlaces = 6;              // decimal places that are compared if one side is a decimal
constexpr std::size_t kMostItems = 64;  // maximum size of a set that is compared in any order

bool is_list(const MathValue& value) {
  return value.kind == Kind::kSet || value.kind == Kind::kTuple || value.kind == Kind::kInterval;
}

// Returns true for unions, intersections and differences of sets, and for named sets.
bool is_compound_set(const MathValue& value) {
  return value.kind == Kind::kSetUnion || value.kind == Kind::kIntersection || value.kind == Kind::kDifference ||
         value.kind == Kind::kNamedSet;
}

bool is_relation(const MathValue& value) { return value.kind == Kind::kRelation || value.kind == Kind::kChain; }

bool is_equation(const MathValue& value) {
  if (value.kind == Kind::kChain) return std::ranges::all_of(value.items, is_equation);
  return value.kind == Kind::kRelation && value.relation == MathRelation::kEqual;
}

bool is_made_of_symbols(const MathValue& value) {
  if (value.kind == Kind::kScalar) return !value.scalar.letters.empty() || only_symbols(value.scalar.value);
  return is_list(value) && !value.items.empty() && std::ranges::all_of(value.items, is_made_of_symbols);
}

// Returns true for an equation or chain of equations whose left side contains symbols only: "x = 5", "f(x) = (x + 1)^2
// = x^2 + 2x + 1".
bool is_assignment(const MathValue& value) {
  if (!is_equation(value)) return false;
  const MathValue& first = value.kind == Kind::kChain ? value.items[0] : value;
  return is_made_of_symbols(first.items[0]);
}

const MathValue& last_side(const MathValue& equation) {
  return equation.kind == Kind::kChain ? last_side(equation.items.back()) : equation.items[1];
}

// Reduces the chain of an assignment to its first left side and its last right side.
MathValue shortened(const MathValue& value) {
  if (value.kind != Kind::kChain || !is_assignment(value)) return value;
  MathValue short_form = value.items[0];
  short_form.items[1] = last_side(value);
  return short_form;
}

// Compares a symbol: it equals adjacent symbols that spell the same name, and a number that is written the same.
bool equal_symbols(const MathScalar& gold, const MathScalar& answer) {
  if (!gold.letters.empty() && !answer.letters.empty()) return gold.letters == answer.letters;
  const MathScalar& other = gold.symbol ? answer : gold;
  const std::string& name = gold.symbol ? gold.letters : answer.letters;
  return other.number && !other.decimal && integer_text(other.value) == name;
}

// Compares two expressions. If one side is a decimal (or a percentage of one) and neither is a whole number, six
// decimal places are compared. A percentage of whole points also equals the points as a plain number. Otherwise the
// comparison is exact.
bool equal_scalars(const MathScalar& gold, const MathScalar& answer) {
  if (gold.symbol || answer.symbol) return equal_symbols(gold, answer);
  if (same_value(gold.value, answer.value)) return true;
  const auto atomic = [](const MathScalar& s) { return s.number || s.percent; };
  const auto whole = [](const MathScalar& s) { return !s.decimal && integer_text(s.value).has_value(); };
  if ((atomic(gold) && gold.decimal) || (atomic(answer) && answer.decimal)) {
    return !whole(gold) && !whole(answer) && same_rounded(gold.value, answer.value, kPlaces);
  }
  if (!atomic(gold) || !atomic(answer)) return false;
  const auto points = [](const MathScalar& s) {
    return integer_text(s.percent ? product_tree(s.value, number_tree(100)) : s.value);
  };
  const auto gold_points = points(gold);
  return gold_points && gold_points == points(answer);
}

bool have_scalar_sides(const MathValue& relation) {
  return relation.items[0].kind == Kind::kScalar && relation.items[1].kind == Kind::kScalar;
}

MathTree difference_of_sides(const MathValue& relation) {
  return difference_tree(relation.items[0].scalar.value, relation.items[1].scalar.value);
}

MathRelation turned(MathRelation relation) {
  switch (relation) {
    case MathRelation::kLess:
      return MathRelation::kGreater;
    case MathRelation::kLessEqual:
      return MathRelation::kGreaterEqual;
    case MathRelation::kGreater:
      return MathRelation::kLess;
    case MathRelation::kGreaterEqual:
      return MathRelation::kLessEqual;
    case MathRelation::kEqual:
    case MathRelation::kNotEqual:
      break;
  }
  return relation;
}

// Compares values by the rules of Math-Verify and, if strict, by the additional rules.
class Sameness {
 public:
  explicit Sameness(bool strict) : strict_(strict) {}

  bool any(const MathValue& gold_as_given, const MathValue& answer_as_given) const {
    const MathValue gold_short = shortened(gold_as_given);
    const MathValue answer_short = shortened(answer_as_given);
    // If only the answer is an equation, its last right side counts. If only the gold answer is an assignment, its
    // value counts.
    const bool unwrap_answer = is_equation(answer_short) && !is_equation(gold_short);
    const bool unwrap_gold = !unwrap_answer && is_assignment(gold_short) && !is_equation(answer_short);
    if (strict_ && (unwrap_answer || answer_as_given.kind == Kind::kChain) && !links_hold(answer_as_given))
      return false;
    const MathValue& gold = unwrap_gold ? last_side(gold_short) : gold_short;
    const MathValue& answer = unwrap_answer ? last_side(answer_short) : answer_short;
    if (gold.kind == Kind::kOpaque || answer.kind == Kind::kOpaque)
      return gold.kind == answer.kind && gold.text == answer.text;
    if (is_relation(gold) && is_relation(answer)) return relations(gold, answer);
    const bool answers_set = is_compound_set(answer) || answer.kind == Kind::kSet || answer.kind == Kind::kInterval;
    if (is_relation(gold) && answers_set && solutions(gold, answer)) return true;
    if (is_compound_set(gold) || is_compound_set(answer)) return compound_sets(gold, answer);
    if (is_list(gold) || is_list(answer)) return lists(gold, answer);
    if (gold.kind == Kind::kMatrix || answer.kind == Kind::kMatrix) {
      return gold.kind == answer.kind && in_order(gold.items, answer.items);
    }
    return gold.kind == Kind::kScalar && answer.kind == Kind::kScalar && scalars(gold.scalar, answer.scalar);
  }

 private:
  bool in_order(const std::vector<MathValue>& gold, const std::vector<MathValue>& answer) const {
    return std::ranges::equal(gold, answer, [this](const MathValue& a, const MathValue& b) { return any(a, b); });
  }

  // Returns true if the items can be matched one to one.
  bool in_any_order(const std::vector<MathValue>& gold, const std::vector<MathValue>& answer) const {
    if (gold.size() != answer.size() || gold.size() > kMostItems) return false;
    std::vector<bool> taken(answer.size(), false);
    return std::ranges::all_of(gold, [&](const MathValue& item) {
      for (std::size_t i = 0; i < answer.size(); ++i) {
        if (!taken[i] && any(item, answer[i])) return taken[i] = true, true;
      }
      return false;
    });
  }

  std::vector<MathValue> distinct(const std::vector<MathValue>& items) const {
    std::vector<MathValue> kept;
    if (items.size() > kMostItems) return items;
    for (const MathValue& item : items) {
      if (std::ranges::none_of(kept, [&](const MathValue& other) { return any(other, item); })) kept.push_back(item);
    }
    return kept;
  }

  // Compares compound sets as sets of real numbers or, if that is not possible, by their parts.
  bool compound_sets(const MathValue& gold, const MathValue& answer) const {
    const auto left = real_set(gold);
    const auto right = real_set(answer);
    if (left && right && same_real_set(*left, *right)) return true;
    if (gold.kind != answer.kind || gold.text != answer.text) return false;
    return gold.kind == Kind::kDifference ? in_order(gold.items, answer.items) : in_any_order(gold.items, answer.items);
  }

  // Compares lists. A scalar counts as a set with one element, and an open interval also as the pair of its ends. A set
  // and a tuple are compared in the order in which their items are written.
  bool lists(const MathValue& gold, const MathValue& answer) const {
    const auto open = [](const MathValue& v) { return v.kind == Kind::kInterval && v.left_open && v.right_open; };
    if (gold.kind == Kind::kInterval && answer.kind == Kind::kInterval) {
      return gold.left_open == answer.left_open && gold.right_open == answer.right_open &&
             in_order(gold.items, answer.items);
    }
    if ((gold.kind == Kind::kInterval && !open(gold)) || (answer.kind == Kind::kInterval && !open(answer)))
      return false;
    const auto items_of = [](const MathValue& v) { return is_list(v) ? v.items : std::vector<MathValue>{v}; };
    const auto unordered = [](const MathValue& v) { return v.kind == Kind::kSet || !is_list(v); };
    if (unordered(gold)) {
      const std::vector<MathValue> right = items_of(answer);
      return in_any_order(distinct(items_of(gold)), unordered(answer) ? distinct(right) : right);
    }
    return in_order(gold.items, items_of(answer));
  }

  // Compares the solutions of a relation with a set: as sets of real numbers, or as lists if there are finitely many.
  bool solutions(const MathValue& gold, const MathValue& answer) const {
    const auto solved = real_set(gold);
    if (!solved) return false;
    const auto answered = real_set(answer);
    if (answered && same_real_set(*solved, *answered)) return true;
    MathValue points;
    points.kind = Kind::kSet;
    for (const RealInterval& interval : *solved) {
      if (interval.low != interval.high) return false;
      points.items.emplace_back().scalar.value = interval.low;
    }
    return lists(points, answer);
  }

  // Compares relations. Any two relations are equal if their sides are. Equations are also equal if the differences of
  // their sides are equal up to the sign or, with several symbols, if they have the same solutions because one is a
  // multiple of the other or both are rational. With one symbol, "2x = 10" is not an answer to "x = 5", as in
  // Math-Verify. Inequalities are also equal if one is a multiple of the other (a negative factor reverses the
  // relation) or, with one symbol, if they have the same solutions.
  bool relations(const MathValue& gold, const MathValue& answer) const {
    if (gold.kind != answer.kind) return false;
    if (gold.kind == Kind::kChain)
      return std::ranges::equal(gold.items, answer.items,
                                [this](const MathValue& a, const MathValue& b) { return relations(a, b); });
    const bool same = gold.relation == answer.relation;
    if (same && any(gold.items[0], answer.items[0]) && any(gold.items[1], answer.items[1])) return true;
    if (!have_scalar_sides(gold) || !have_scalar_sides(answer)) return false;
    const MathTree left = difference_of_sides(gold);
    const MathTree right = difference_of_sides(answer);
    if (gold.relation == MathRelation::kEqual || gold.relation == MathRelation::kNotEqual) {
      if (!same) return false;
      if (same_value(left, right) || same_value(left, negative_tree(right))) return true;
      const std::vector<std::string> symbols = symbols_of(left);
      return symbols.size() > 1 && symbols == symbols_of(right) &&
             (ratio_sign(left, right).has_value() || same_roots(left, right));
    }
    if (const auto sign = ratio_sign(left, right); sign && *sign != 0) {
      return (*sign > 0 ? answer.relation : turned(answer.relation)) == gold.relation;
    }
    const auto solved = real_set(gold);
    const auto answered = real_set(answer);
    return solved && answered && same_real_set(*solved, *answered) && symbols_of(left) == symbols_of(right);
  }

  // Returns true if no side of an equation or of a chain of equations contradicts the next one.
  bool links_hold(const MathValue& relation) const {
    if (!is_equation(relation)) return true;
    if (relation.kind == Kind::kChain)
      return std::ranges::all_of(relation.items, [this](const MathValue& link) { return links_hold(link); });
    const MathValue& left = relation.items[0];
    const MathValue& right = relation.items[1];
    if (have_scalar_sides(relation)) return !contradict(left.scalar, right.scalar);
    return has_symbols(left) || has_symbols(right) || any(left, right) || any(right, left);
  }

  bool scalars(const MathScalar& gold, const MathScalar& answer) const {
    return equal_scalars(gold, answer) && (!strict_ || equal_strictly(gold, answer));
  }

  bool strict_;
};

}  // namespace

bool has_symbols(const MathValue& value) {
  if (value.kind == MathValue::Kind::kScalar) return value.scalar.value->has_symbols;
  return std::ranges::any_of(value.items, has_symbols);
}

bool equal_values(const MathValue& gold, const MathValue& answer, bool strict) {
  try {
    return Sameness(strict).any(gold, answer);
  } catch (const BeyondDomain&) {
    return false;
  }
}

}  // namespace hone
