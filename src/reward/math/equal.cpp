#include <algorithm>
#include <cmath>
#include <cstddef>

#include "reward/math/value.h"

namespace hone {
namespace {

using Kind = MathValue::Kind;

constexpr int kPlaces = 6;              // decimals that count where a side is a decimal
constexpr std::size_t kMostItems = 64;  // of a set that is compared in any order

bool is_list(const MathValue& value) {
  return value.kind == Kind::set || value.kind == Kind::tuple || value.kind == Kind::interval ||
         value.kind == Kind::set_union;
}

bool is_assignment(const MathValue& value) {
  return value.kind == Kind::equation && value.items[0].kind == Kind::scalar && !value.items[0].scalar.letters.empty();
}

// A symbol equals symbols side by side that spell it, and a number written the same.
bool equal_symbols(const MathScalar& gold, const MathScalar& answer) {
  if (!gold.letters.empty() && !answer.letters.empty()) return gold.letters == answer.letters;
  const MathScalar& other = gold.symbol ? answer : gold;
  const std::string& name = gold.symbol ? gold.letters : answer.letters;
  const auto value = other.value.rational();
  return value && other.number && !other.decimal && value->text() == name;
}

bool equal_rounded(const MathExpression& a, const MathExpression& b) {
  const auto left = a.rational();
  const auto right = b.rational();
  if (left && right) return left->rounded(kPlaces) == right->rounded(kPlaces);
  const auto left_near = a.approximate();
  const auto right_near = b.approximate();
  const auto is_small = [](const std::optional<long double>& near) { return near && std::abs(*near) <= 1e12L; };
  if (!is_small(left_near) || !is_small(right_near)) return false;  // not a number is neither
  return std::llround(*left_near * 1e6L) == std::llround(*right_near * 1e6L);
}

// Six decimals count where one side is one decimal (or a percentage of one) and the other is no whole number; a
// percentage of whole points also equals its points. All else is exact.
bool equal_scalars(const MathScalar& gold, const MathScalar& answer) {
  if (gold.symbol || answer.symbol) return equal_symbols(gold, answer);
  if (gold.value == answer.value) return true;
  const auto atomic = [](const MathScalar& s) { return s.number || s.percent; };
  const auto whole = [](const MathScalar& s) {
    const auto value = s.value.rational();
    return !s.decimal && value && value->is_integer();
  };
  if ((atomic(gold) && gold.decimal) || (atomic(answer) && answer.decimal)) {
    return !whole(gold) && !whole(answer) && equal_rounded(gold.value, answer.value);
  }
  if (!atomic(gold) || !atomic(answer)) return false;
  const auto points = [](const MathScalar& s) { return s.percent ? s.value * MathExpression(Rational(100)) : s.value; };
  const MathExpression gold_points = points(gold);
  const MathExpression answer_points = points(answer);
  const auto whole_points = [](const MathExpression& e) { return e.rational() && e.rational()->is_integer(); };
  return whole_points(gold_points) && whole_points(answer_points) && gold_points == answer_points;
}

bool equal_any(const MathValue& gold, const MathValue& answer);

bool equal_in_order(const std::vector<MathValue>& gold, const std::vector<MathValue>& answer) {
  return std::ranges::equal(gold, answer, equal_any);
}

// Every item finds a partner of its own.
bool equal_in_any_order(const std::vector<MathValue>& gold, const std::vector<MathValue>& answer) {
  if (gold.size() != answer.size() || gold.size() > kMostItems) return false;
  std::vector<bool> taken(answer.size(), false);
  return std::ranges::all_of(gold, [&](const MathValue& item) {
    for (std::size_t i = 0; i < answer.size(); ++i) {
      if (!taken[i] && equal_any(item, answer[i])) return taken[i] = true, true;
    }
    return false;
  });
}

std::vector<MathValue> distinct(const std::vector<MathValue>& items) {
  std::vector<MathValue> kept;
  if (items.size() > kMostItems) return items;
  for (const MathValue& item : items) {
    if (std::ranges::none_of(kept, [&](const MathValue& other) { return equal_any(other, item); }))
      kept.push_back(item);
  }
  return kept;
}

// Lists. A scalar beside a list is a set of one. An open interval is also the pair of its ends; a set beside a tuple
// is read in the order in which it was written.
bool equal_lists(const MathValue& gold, const MathValue& answer) {
  if (gold.kind == Kind::set_union || answer.kind == Kind::set_union) {
    return gold.kind == answer.kind && equal_in_any_order(gold.items, answer.items);
  }
  const auto open = [](const MathValue& v) { return v.kind == Kind::interval && v.left_open && v.right_open; };
  if (gold.kind == Kind::interval && answer.kind == Kind::interval) {
    return gold.left_open == answer.left_open && gold.right_open == answer.right_open &&
           equal_in_order(gold.items, answer.items);
  }
  if ((gold.kind == Kind::interval && !open(gold)) || (answer.kind == Kind::interval && !open(answer))) return false;
  const auto items_of = [](const MathValue& v) { return is_list(v) ? v.items : std::vector<MathValue>{v}; };
  const auto unordered = [](const MathValue& v) { return v.kind == Kind::set || !is_list(v); };
  if (unordered(gold)) {
    const std::vector<MathValue> right = items_of(answer);
    return equal_in_any_order(distinct(items_of(gold)), unordered(answer) ? distinct(right) : right);
  }
  return equal_in_order(gold.items, items_of(answer));
}

// Assignments: the same symbol and value. Equations: one is a multiple of the other.
bool equal_equations(const MathValue& gold, const MathValue& answer) {
  if (is_assignment(gold) && is_assignment(answer) && equal_any(gold.items[0], answer.items[0]) &&
      equal_any(gold.items[1], answer.items[1])) {
    return true;
  }
  const auto scalars = [](const MathValue& v) {
    return v.items[0].kind == Kind::scalar && v.items[1].kind == Kind::scalar;
  };
  if (!scalars(gold) || !scalars(answer)) return false;
  const auto difference = [](const MathValue& v) { return v.items[0].scalar.value - v.items[1].scalar.value; };
  const auto ratio = difference(gold).ratio_to(difference(answer));
  return ratio && !ratio->is_zero();
}

bool equal_any(const MathValue& gold_as_given, const MathValue& answer_as_given) {
  // Where the gold is no equation, the answer's last right-hand side counts; where it is an assignment, a bare value.
  const bool unwrap_answer = answer_as_given.kind == Kind::equation && gold_as_given.kind != Kind::equation;
  const bool unwrap_gold = is_assignment(gold_as_given) && answer_as_given.kind != Kind::equation;
  const MathValue& gold = unwrap_gold ? gold_as_given.items[1] : gold_as_given;
  const MathValue& answer = unwrap_answer ? answer_as_given.items[1] : answer_as_given;
  if (gold.kind == Kind::opaque || answer.kind == Kind::opaque)
    return gold.kind == answer.kind && gold.text == answer.text;
  if (gold.kind == Kind::equation || answer.kind == Kind::equation) {
    return gold.kind == answer.kind && equal_equations(gold, answer);
  }
  if (gold.kind == Kind::matrix || answer.kind == Kind::matrix) {
    return gold.kind == answer.kind && equal_in_order(gold.items, answer.items);
  }
  if (is_list(gold) || is_list(answer)) return equal_lists(gold, answer);
  return equal_scalars(gold.scalar, answer.scalar);
}

}  // namespace

bool equal_values(const MathValue& gold, const MathValue& answer) {
  try {
    return equal_any(gold, answer);
  } catch (const BeyondDomain&) {
    return false;
  }
}

}  // namespace hone
