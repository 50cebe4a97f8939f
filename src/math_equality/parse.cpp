#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "core/characters.h"
#include "math_equality/algebra.h"
#include "math_equality/matrix_parser.h"
#include "math_equality/tokens.h"
#include "math_equality/value.h"

namespace hone {
namespace {

bool is_equals(const MathToken& token) { return token.is("="); }
bool is_empty_set(const MathToken& token) { return is_one_of(token, {"\\emptyset", "\\varnothing"}); }
bool joins_sets(const MathToken& token) { return is_one_of(token, {"\\cup", "\\cap", "\\setminus"}); }

std::optional<MathRelation> relation_of(const MathToken& token) {
  if (is_one_of(token, {"=", "==", "\\equiv"})) return MathRelation::kEqual;
  if (is_one_of(token, {"!=", "\\ne", "\\neq"})) return MathRelation::kNotEqual;
  if (is_one_of(token, {"<", "\\lt"})) return MathRelation::kLess;
  if (is_one_of(token, {"<=", "\\le", "\\leq", "\\leqslant"})) return MathRelation::kLessEqual;
  if (is_one_of(token, {">", "\\gt"})) return MathRelation::kGreater;
  if (is_one_of(token, {">=", "\\ge", "\\geq", "\\geqslant"})) return MathRelation::kGreaterEqual;
  return std::nullopt;
}

bool relates(const MathToken& token) { return relation_of(token).has_value(); }
// Returns true for tokens that may occur in an element of a list but not in an expression.
bool holds_elements(const MathToken& token) { return relates(token) || is_one_of(token, {"\\pm", "\\mp"}); }
// Returns the kind of brace that a token opens or closes; 0 for parentheses and brackets, which intervals may mix.
int brace_kind(const MathToken& token) {
  if (is_one_of(token, {"{", "}"})) return 1;
  if (is_one_of(token, {"\\{", "\\}"})) return 2;
  return is_one_of(token, {"\\lbrace", "\\rbrace"}) ? 3 : 0;
}
bool is_comma(const MathToken& token) { return token.is(","); }

MathValue make_relation(MathRelation relation, MathValue left, MathValue right) {
  std::vector<MathValue> sides;
  sides.push_back(std::move(left));
  sides.push_back(std::move(right));
  MathValue value = make_value(MathValue::Kind::kRelation, std::move(sides));
  value.relation = relation;
  return value;
}

// Top layer of the LaTeX parser: lists, sets and relations.
class Parser : private MatrixParser {
 public:
  using MatrixParser::MatrixParser;

  MathValue whole() {
    MathValue value = assignment_ahead() ? assignment() : elements();
    if (!done()) throw MathSyntaxError();
    return value;
  }

 private:
  // Returns true for one symbol followed by a list, as in "x = 1, 2" and "x \in S". "a = 1, b = 2" is a list of
  // equations.
  [[nodiscard]] bool assignment_ahead() const {
    if (tokens_.size() < 3) return false;
    if (tokens_[0].kind != Kind::kLetter && tokens_[0].kind != Kind::kNamed && tokens_[0].kind != Kind::kCommand)
      return false;
    std::size_t end = 1;
    if (is_at(end, "_")) end = is_at(end + 1, "{") ? matching(end + 1) + 1 : end + 2;
    if (is_at(end, "\\in")) return true;
    return is_at(end, "=") && count_outside(0, tokens_.size(), is_equals) == 1;
  }

  MathValue assignment() {
    MathValue left = make_value(comp());
    ++at_;
    MathValue right = elements();
    return make_relation(MathRelation::kEqual, std::move(left), std::move(right));
  }

  // Parses lists separated by semicolons, whose items are separated by commas. elements() turns "1, 2" and "1; 2" into
  // a set, "1, 2; 3, 4" into a set of tuples, and "1" into the item itself.
  std::vector<std::vector<MathValue>> lists() {
    std::vector<std::vector<MathValue>> all(1);
    for (;;) {
      for (MathValue& value : element()) all.back().push_back(std::move(value));
      if (accept(",")) continue;
      if (!accept(";")) return all;
      all.emplace_back();
    }
  }

  MathValue elements() {
    std::vector<std::vector<MathValue>> all = lists();
    if (all.size() == 1 && all[0].size() == 1) return std::move(all[0][0]);
    if (all.size() == 1) return make_value(MathValue::Kind::kSet, std::move(all[0]));
    const bool flat = std::ranges::all_of(all, [](const auto& list) { return list.size() == 1; });
    std::vector<MathValue> items;
    items.reserve(all.size());
    for (auto& list : all)
      items.push_back(flat ? std::move(list[0]) : make_value(MathValue::Kind::kTuple, std::move(list)));
    return make_value(MathValue::Kind::kSet, std::move(items));
  }

  std::vector<MathValue> element() {
    const Deeper deeper(depth_);
    if (accept("\\pm") || accept("\\mp")) {
      const MathScalar inner = additive();
      MathValue negative = make_value(plain_scalar(negative_tree(inner.value)));
      negative.scalar.number = inner.number;
      negative.scalar.decimal = inner.decimal;
      return {std::move(negative), make_value(inner)};
    }
    MathValue left = operand();
    if (left.kind == MathValue::Kind::kScalar && (accept("\\pm") || accept("\\mp"))) {
      const MathTree right = additive().value;
      return {make_value(plain_scalar(sum_tree(left.scalar.value, right))),
              make_value(plain_scalar(difference_tree(left.scalar.value, right)))};
    }
    while (!done() && !separates(tokens_[at_]) && !closes_group(tokens_[at_])) left = related(std::move(left));
    std::vector<MathValue> one;
    one.push_back(std::move(left));
    return one;
  }

  // Parses a further relation after `left`, which may itself be a relation or a chain of relations.
  MathValue related(MathValue left) {
    if (accept("\\approx") || accept("~=")) {  // "x \approx 3" is 3; "\pi \approx 3.14" is pi
      MathValue right = operand();
      const bool assigned = left.kind == MathValue::Kind::kScalar && only_symbols(left.scalar.value);
      return assigned ? std::move(right) : std::move(left);
    }
    const std::optional<MathRelation> relation = relation_of(tokens_[at_]);
    if (!relation) throw MathSyntaxError();
    ++at_;
    const bool first = left.kind != MathValue::Kind::kRelation && left.kind != MathValue::Kind::kChain;
    if (first) return make_relation(*relation, std::move(left), operand());
    if (left.kind == MathValue::Kind::kRelation) {
      std::vector<MathValue> items;
      items.push_back(std::move(left));
      left = make_value(MathValue::Kind::kChain, std::move(items));
    }
    MathValue middle = left.items.back().items[1];
    left.items.push_back(make_relation(*relation, std::move(middle), operand()));
    return left;
  }

  MathValue operand() {
    if (set_ahead()) return set_expression();
    return matrix_within(at_, element_end()) ? matrix_sum() : make_value(additive());
  }

  // Returns the index of the token at which the operand must end at the latest.
  [[nodiscard]] std::size_t element_end() const {
    int depth = 0;
    for (std::size_t i = at_; i < tokens_.size(); ++i) {
      if (closes_group(tokens_[i]) && --depth < 0) return i;
      if (depth == 0 && (separates(tokens_[i]) || relates(tokens_[i]))) return i;
      if (opens_group(tokens_[i])) ++depth;
    }
    return tokens_.size();
  }
  // Parses set operations: intersections bind tighter than unions, and unions tighter than differences.
  MathValue set_expression() {
    MathValue left = set_union();
    while (accept("\\setminus")) left = joined(MathValue::Kind::kDifference, std::move(left), set_union());
    return left;
  }
  MathValue set_union() {
    MathValue left = intersection();
    while (accept("\\cup")) left = joined(MathValue::Kind::kSetUnion, std::move(left), intersection());
    return left;
  }
  MathValue intersection() {
    MathValue left = set_atom();
    while (accept("\\cap")) left = joined(MathValue::Kind::kIntersection, std::move(left), set_atom());
    return left;
  }
  // Builds a set operation. A tuple counts as a set, except in differences.
  static MathValue joined(MathValue::Kind kind, MathValue left, MathValue right) {
    std::vector<MathValue> items;
    for (MathValue* side : {&left, &right}) {
      if (side->kind == MathValue::Kind::kScalar) throw MathSyntaxError();
      if (side->kind == MathValue::Kind::kTuple && kind != MathValue::Kind::kDifference)
        side->kind = MathValue::Kind::kSet;
      items.push_back(std::move(*side));
    }
    return make_value(kind, std::move(items));
  }

  // Returns true if a set begins here: a group that contains a list, or visible braces that are a whole element.
  [[nodiscard]] bool set_ahead() const {
    if (done()) return false;
    if (tokens_[at_].kind == Kind::kNamedSet || is_empty_set(tokens_[at_])) return true;
    if (!opens_group(tokens_[at_])) return false;
    const std::size_t close = matching(at_);
    if (count_outside(at_ + 1, close, separates) > 0) return true;
    if (close + 1 < tokens_.size() && joins_sets(tokens_[close + 1])) return true;
    const bool braces = tokens_[at_].is("\\{") || tokens_[at_].is("\\lbrace");
    if (count_outside(at_ + 1, close, holds_elements) > 0) return true;
    return braces && (close + 1 == tokens_.size() || separates(tokens_[close + 1]) ||
                      closes_group(tokens_[close + 1]) || tokens_[close + 1].is("\\cup"));
  }

  MathValue set_atom() {
    const Deeper deeper(depth_);
    if (done()) throw MathSyntaxError();
    if (tokens_[at_].kind == Kind::kNamedSet) {
      MathValue named = make_value(MathValue::Kind::kNamedSet, {});
      named.text = tokens_[at_++].text;
      return named;
    }
    if (is_empty_set(tokens_[at_])) return ++at_, make_value(MathValue::Kind::kSet, {});
    if (!opens_group(tokens_[at_])) throw MathSyntaxError();
    if (tokens_[at_].is("(") && count_outside(at_ + 1, matching(at_), joins_sets) > 0) {
      ++at_;
      MathValue inner = set_expression();
      expect(")");
      return inner;
    }
    const bool pair = count_outside(at_ + 1, matching(at_), is_comma) == 1;
    const MathToken open = tokens_[at_++];
    const bool braces = open.is("{") || open.is("\\{") || open.is("\\lbrace");
    if (braces && !done() && closes_group(tokens_[at_])) {
      ++at_;
      return make_value(MathValue::Kind::kSet, {});
    }
    std::vector<std::vector<MathValue>> all = lists();
    if (done() || !closes_group(tokens_[at_])) throw MathSyntaxError();
    const MathToken close = tokens_[at_++];
    if (brace_kind(open) != brace_kind(close)) throw MathSyntaxError();
    const bool semicolons = all.size() > 1;
    std::vector<MathValue> items;
    for (auto& list : all) std::ranges::move(list, std::back_inserter(items));
    if (braces) return make_value(MathValue::Kind::kSet, std::move(items));
    if (items.size() == 1) return std::move(items[0]);
    const bool left_open = open.is("(") || open.is("\\(");
    const bool right_open = close.is(")") || close.is("\\)");
    if (items.size() != 2 || !pair || semicolons || !can_be_interval(items, left_open, right_open)) {
      if (left_open != right_open) throw BeyondDomain();
      return make_value(MathValue::Kind::kTuple, std::move(items));
    }
    MathValue interval = make_value(MathValue::Kind::kInterval, std::move(items));
    interval.left_open = left_open || interval.items[0].scalar.value->has_infinity;
    interval.right_open = right_open || interval.items[1].scalar.value->has_infinity;
    return interval;
  }

  // Returns true if a pair can be an interval: a pair in descending order is a tuple.
  static bool can_be_interval(const std::vector<MathValue>& ends, bool left_open, bool right_open) {
    if (ends[0].kind != MathValue::Kind::kScalar || ends[1].kind != MathValue::Kind::kScalar) return false;
    if (left_open != right_open) return true;
    const auto order = compare_values(ends[0].scalar.value, ends[1].scalar.value);
    return !order || *order < (left_open ? 0 : 1);
  }
};

// Parses a number with thousands separators, such as "10,080", which is not a list.
std::optional<MathScalar> number_with_commas(std::string_view text) {
  text = strip(text);
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const std::size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point);
  const std::size_t first = whole.find(',');
  if (first == std::string_view::npos || first == 0 || first > 3) return std::nullopt;
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool comma = i < point && i >= first && (i - first) % 4 == 0;
    if (i == point) {
      if (i + 1 == text.size()) return std::nullopt;
      digits += '.';
    } else if (comma ? text[i] != ',' : !is_digit(text[i])) {
      return std::nullopt;
    } else if (!comma) {
      digits += text[i];
    }
  }
  if ((point - first) % 4 != 0) return std::nullopt;
  // After a leading zero the comma is a decimal comma, as in Math-Verify.
  if (whole[0] == '0') {
    if (point != text.size() || std::ranges::count(whole, ',') > 1) return std::nullopt;
    digits.insert(first, ".");
  }
  const MathTree value = number_tree(digits);
  return number_scalar(negative ? negative_tree(value) : value, digits.find('.') != std::string::npos);
}

MathValue opaque(std::string_view text) {
  MathValue value;
  value.kind = MathValue::Kind::kOpaque;
  for (const char c : text) {
    if (c != ' ') value.text += c;
  }
  return value;
}

}  // namespace

std::optional<MathValue> parse_latex(std::string_view text) {
  try {
    if (const auto value = number_with_commas(text)) {
      return make_value(*value);
    }
    std::optional<std::vector<MathToken>> tokens = tokenize_latex(text);
    if (!tokens || tokens->empty()) return std::nullopt;
    return Parser(std::move(*tokens)).whole();
  } catch (const MathSyntaxError&) {
    return std::nullopt;
  } catch (const BeyondDomain&) {
    return opaque(text);
  }
}

std::optional<MathValue> as_percent(const MathValue& value) {
  if (value.kind != MathValue::Kind::kScalar || !value.scalar.number) return std::nullopt;
  MathValue result = value;
  result.scalar.number = false;
  result.scalar.percent = true;
  result.scalar.value = quotient_tree(result.scalar.value, number_tree(100));
  return result;
}

}  // namespace hone
