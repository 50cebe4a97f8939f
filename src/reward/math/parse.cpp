#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "reward/characters.h"
#include "reward/math/expression_parser.h"
#include "reward/math/tokens.h"
#include "reward/math/value.h"

namespace hone {
namespace {

bool is_equals(const MathToken& token) { return token.is("="); }

MathValue make(MathValue::Kind kind, std::vector<MathValue> items) {
  MathValue value;
  value.kind = kind;
  value.items = std::move(items);
  return value;
}

MathValue make(MathScalar scalar) {
  MathValue value;
  value.scalar = std::move(scalar);
  return value;
}

// The parser's upper half: lists, sets and relations.
class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  MathValue whole() {
    MathValue value = assignment_ahead() ? assignment() : elements();
    if (!done()) throw MathSyntaxError();
    return value;
  }

 private:
  // "x = 1, 2" and "x \in S": one symbol, then a list; but "a = 1, b = 2" is a list of equations.
  [[nodiscard]] bool assignment_ahead() const {
    if (tokens_.size() < 3) return false;
    if (tokens_[0].kind != Kind::letter && tokens_[0].kind != Kind::named && tokens_[0].kind != Kind::command)
      return false;
    std::size_t end = 1;
    if (is_at(end, "_")) end = is_at(end + 1, "{") ? matching(end + 1) + 1 : end + 2;
    if (is_at(end, "\\in")) return true;
    return is_at(end, "=") && count_outside(0, tokens_.size(), is_equals) == 1;
  }

  MathValue assignment() {
    MathValue left = make(comp());
    ++at_;
    MathValue right = elements();
    return make(MathValue::Kind::equation, {std::move(left), std::move(right)});
  }

  // Lists in lists: "1, 2" is a set, "1; 2" too, "1, 2; 3, 4" a set of tuples, "1" itself.
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
    if (all.size() == 1) return make(MathValue::Kind::set, std::move(all[0]));
    const bool flat = std::ranges::all_of(all, [](const auto& list) { return list.size() == 1; });
    std::vector<MathValue> items;
    for (auto& list : all) items.push_back(flat ? std::move(list[0]) : make(MathValue::Kind::tuple, std::move(list)));
    return make(MathValue::Kind::set, std::move(items));
  }

  std::vector<MathValue> element() {
    const Deeper deeper(depth_);
    if (accept("\\pm") || accept("\\mp")) {
      const MathScalar inner = additive();
      return {make(plain_scalar(-inner.value)), make(inner)};
    }
    std::vector<MathValue> chain = {operand()};
    if (chain[0].kind == MathValue::Kind::scalar && (accept("\\pm") || accept("\\mp"))) {
      const MathScalar right = additive();
      const MathExpression& left = chain[0].scalar.value;
      return {make(plain_scalar(left + right.value)), make(plain_scalar(left - right.value))};
    }
    while (!done() && !separates(tokens_[at_]) && !closes_group(tokens_[at_])) {
      if (accept("\\approx")) {  // "x \approx 3": 3; "\pi \approx 3.14": pi
        MathValue right = operand();
        if (chain.back().kind == MathValue::Kind::scalar && chain.back().scalar.symbol) chain.back() = std::move(right);
        continue;
      }
      if (!accept("=")) throw BeyondDomain();  // an inequality, or what does not belong here
      chain.push_back(operand());
    }
    if (chain.size() == 1) return chain;
    if (chain.size() > 2 && chain[0].scalar.letters.empty()) throw BeyondDomain();
    return {make(MathValue::Kind::equation, {std::move(chain.front()), std::move(chain.back())})};
  }

  MathValue operand() {
    if (next_is("\\emptyset") || next_is("\\varnothing")) {
      ++at_;
      return make(MathValue::Kind::set, {});
    }
    if (!set_ahead()) {
      if (!done() && tokens_[at_].kind == Kind::environment) return matrix();
      return make(additive());
    }
    std::vector<MathValue> parts = {set_atom()};
    while (accept("\\cup")) parts.push_back(set_atom());
    if (parts.size() == 1) return std::move(parts[0]);
    return make(MathValue::Kind::set_union, std::move(parts));
  }

  // A group that holds a list, or visible braces that are a whole element.
  [[nodiscard]] bool set_ahead() const {
    if (done() || !opens_group(tokens_[at_])) return false;
    const std::size_t close = matching(at_);
    if (count_outside(at_ + 1, close, separates) > 0) return true;
    const bool braces = tokens_[at_].is("\\{") || tokens_[at_].is("\\lbrace");
    return braces && (close + 1 == tokens_.size() || separates(tokens_[close + 1]) ||
                      closes_group(tokens_[close + 1]) || tokens_[close + 1].is("\\cup"));
  }

  MathValue set_atom() {
    if (done() || !opens_group(tokens_[at_])) throw BeyondDomain();
    const MathToken open = tokens_[at_++];
    const bool braces = open.is("{") || open.is("\\{") || open.is("\\lbrace");
    if (braces && !done() && closes_group(tokens_[at_])) {
      ++at_;
      return make(MathValue::Kind::set, {});
    }
    std::vector<std::vector<MathValue>> all = lists();
    if (done() || !closes_group(tokens_[at_])) throw MathSyntaxError();
    const MathToken close = tokens_[at_++];
    const bool semicolons = all.size() > 1;
    std::vector<MathValue> items;
    for (auto& list : all) std::ranges::move(list, std::back_inserter(items));
    if (braces) return make(MathValue::Kind::set, std::move(items));
    if (items.size() == 1) return std::move(items[0]);
    const bool left_open = open.is("(") || open.is("\\(");
    const bool right_open = close.is(")") || close.is("\\)");
    if (items.size() != 2 || semicolons || !can_be_interval(items, left_open, right_open)) {
      if (left_open != right_open) throw BeyondDomain();
      return make(MathValue::Kind::tuple, std::move(items));
    }
    MathValue interval = make(MathValue::Kind::interval, std::move(items));
    interval.left_open = left_open;
    interval.right_open = right_open;
    return interval;
  }

  // A pair whose ends are the wrong way round is a tuple.
  static bool can_be_interval(const std::vector<MathValue>& ends, bool left_open, bool right_open) {
    if (ends[0].kind != MathValue::Kind::scalar || ends[1].kind != MathValue::Kind::scalar) return false;
    const auto left = ends[0].scalar.value.approximate();
    const auto right = ends[1].scalar.value.approximate();
    if (!left || !right || left_open != right_open) return true;
    return left_open ? *left < *right : *left <= *right;
  }

  MathValue matrix() {
    const std::string kind = tokens_[at_].text;
    if (kind != "begin pmatrix" && kind != "begin bmatrix" && kind != "begin matrix") throw BeyondDomain();
    ++at_;
    std::vector<MathValue> rows(1, make(MathValue::Kind::tuple, {}));
    for (;;) {
      rows.back().items.push_back(make(additive()));
      if (accept("&")) continue;
      const bool broken = accept("\\\\");
      if (!done() && tokens_[at_].kind == Kind::environment) break;
      if (!broken) throw MathSyntaxError();
      rows.push_back(make(MathValue::Kind::tuple, {}));
    }
    if (tokens_[at_++].text != "end" + kind.substr(5)) throw MathSyntaxError();
    return make(MathValue::Kind::matrix, std::move(rows));
  }
};

// "10,080": a comma every three digits is no list.
std::optional<Rational> number_with_commas(std::string_view text) {
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
  // A leading zero makes the comma a decimal one, in the reference.
  if (whole[0] == '0') {
    if (point != text.size() || std::ranges::count(whole, ',') > 1) return std::nullopt;
    digits.insert(first, ".");
  }
  const Rational value = Rational::from_decimal(digits);
  return negative ? -value : value;
}

MathValue opaque(std::string_view text) {
  MathValue value;
  value.kind = MathValue::Kind::opaque;
  for (const char c : text) {
    if (c != ' ') value.text += c;
  }
  return value;
}

}  // namespace

std::optional<MathValue> parse_latex(std::string_view text) {
  try {
    if (const auto value = number_with_commas(text)) {
      return make(number_scalar(*value, text.find('.') != std::string_view::npos));
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
  if (value.kind != MathValue::Kind::scalar || !value.scalar.number) return std::nullopt;
  MathValue result = value;
  result.scalar.number = false;
  result.scalar.percent = true;
  result.scalar.value = result.scalar.value / MathExpression(Rational(100));
  return result;
}

}  // namespace hone
