#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "reward/characters.h"
#include "reward/math/tokens.h"
#include "reward/math/value.h"

namespace hone {
namespace {

struct SyntaxError {};

constexpr int kDeepest = 64;

constexpr std::array kGreek = std::to_array<std::string_view>(
    {"\\alpha",  "\\beta",  "\\delta",    "\\Delta",    "\\epsilon", "\\varepsilon", "\\zeta",   "\\eta",
     "\\theta",  "\\Theta", "\\vartheta", "\\iota",     "\\kappa",   "\\lambda",     "\\Lambda", "\\mu",
     "\\nu",     "\\xi",    "\\Xi",       "\\omicron",  "\\Pi",      "\\varpi",      "\\rho",    "\\varrho",
     "\\sigma",  "\\Sigma", "\\varsigma", "\\tau",      "\\upsilon", "\\Upsilon",    "\\phi",    "\\Phi",
     "\\varphi", "\\chi",   "\\psi",      "\\Psi",      "\\omega",   "\\Omega",      "\\gamma",  "\\Gamma",
     "\\ell",    "\\hbar",  "\\angle",    "\\triangle", "\\square",  "\\prime"});

bool is_one_of(const MathToken& token, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return token.is(word); });
}
bool opens(const MathToken& token) { return is_one_of(token, {"(", "[", "{", "\\{", "\\lbrace", "\\(", "\\lbrack"}); }
bool closes(const MathToken& token) { return is_one_of(token, {")", "]", "}", "\\}", "\\rbrace", "\\)", "\\rbrack"}); }
bool separates(const MathToken& token) { return token.is(",") || token.is(";"); }
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

MathScalar plain(MathExpression value) {
  MathScalar scalar;
  scalar.value = std::move(value);
  return scalar;
}

MathScalar number(const Rational& value, bool decimal = false) {
  MathScalar scalar = plain(MathExpression(value));
  scalar.number = true;
  scalar.decimal = decimal;
  return scalar;
}

MathScalar symbol(std::string name) {
  std::ranges::transform(name, name.begin(), lower);
  MathScalar scalar = plain(MathExpression::generator("$" + name));  // "$": never a prime, never a constant
  scalar.letters = std::move(name);
  scalar.symbol = true;
  return scalar;
}

bool is_integer_number(const MathScalar& scalar) {
  if (!scalar.number || scalar.decimal) return false;
  const auto value = scalar.value.rational();
  return value && value->is_integer();
}

// A recursive descent over the tokens. Throws SyntaxError where the text is malformed, BeyondDomain where it is not
// computed here.
class Parser {
 public:
  explicit Parser(std::vector<MathToken> tokens) : tokens_(std::move(tokens)) {}

  MathValue whole() {
    MathValue value = assignment_ahead() ? assignment() : elements();
    if (!done()) throw SyntaxError();
    return value;
  }

 private:
  using Kind = MathToken::Kind;

  // --- tokens

  [[nodiscard]] bool done() const { return at_ >= tokens_.size(); }
  [[nodiscard]] bool next_is(std::string_view word) const { return !done() && tokens_[at_].is(word); }
  [[nodiscard]] bool is_at(std::size_t at, std::string_view word) const {
    return at < tokens_.size() && tokens_[at].is(word);
  }
  bool accept(std::string_view word) {
    if (!next_is(word)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view word) {
    if (!accept(word)) throw SyntaxError();
  }
  // The closing token of the group that begins at `open`.
  [[nodiscard]] std::size_t matching(std::size_t open) const {
    int depth = 0;
    for (std::size_t i = open; i < tokens_.size(); ++i) {
      if (opens(tokens_[i])) ++depth;
      if (closes(tokens_[i]) && --depth == 0) return i;
    }
    throw SyntaxError();
  }
  // Whether a token that satisfies `wanted` lies in [begin, end) outside groups.
  template <class Wanted>
  [[nodiscard]] std::size_t count_outside(std::size_t begin, std::size_t end, const Wanted& wanted) const {
    int depth = 0;
    std::size_t count = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (closes(tokens_[i])) --depth;
      if (depth == 0 && wanted(tokens_[i])) ++count;
      if (opens(tokens_[i])) ++depth;
    }
    return count;
  }
  struct Deeper {
    explicit Deeper(int& depth) : depth_(depth) {
      if (++depth_ > kDeepest) throw BeyondDomain();
    }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { --depth_; }
    int& depth_;
  };

  // --- sets and relations

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
      return {make(plain(-inner.value)), make(inner)};
    }
    std::vector<MathValue> chain = {operand()};
    if (chain[0].kind == MathValue::Kind::scalar && (accept("\\pm") || accept("\\mp"))) {
      const MathScalar right = additive();
      const MathExpression& left = chain[0].scalar.value;
      return {make(plain(left + right.value)), make(plain(left - right.value))};
    }
    while (!done() && !separates(tokens_[at_]) && !closes(tokens_[at_])) {
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
    if (done() || !opens(tokens_[at_])) return false;
    const std::size_t close = matching(at_);
    if (count_outside(at_ + 1, close, separates) > 0) return true;
    const bool braces = tokens_[at_].is("\\{") || tokens_[at_].is("\\lbrace");
    return braces && (close + 1 == tokens_.size() || separates(tokens_[close + 1]) || closes(tokens_[close + 1]) ||
                      tokens_[close + 1].is("\\cup"));
  }

  MathValue set_atom() {
    if (done() || !opens(tokens_[at_])) throw BeyondDomain();
    const MathToken open = tokens_[at_++];
    const bool braces = open.is("{") || open.is("\\{") || open.is("\\lbrace");
    if (braces && !done() && closes(tokens_[at_])) {
      ++at_;
      return make(MathValue::Kind::set, {});
    }
    std::vector<std::vector<MathValue>> all = lists();
    if (done() || !closes(tokens_[at_])) throw SyntaxError();
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
      if (!broken) throw SyntaxError();
      rows.push_back(make(MathValue::Kind::tuple, {}));
    }
    if (tokens_[at_++].text != "end" + kind.substr(5)) throw SyntaxError();
    return make(MathValue::Kind::matrix, std::move(rows));
  }

  // --- expressions

  MathScalar additive() {
    const Deeper deeper(depth_);
    MathScalar left = product();
    for (;;) {
      if (accept("+")) {
        left = plain(left.value + product().value);
      } else if (accept("-")) {
        left = plain(left.value - product().value);
      } else {
        return left;
      }
    }
  }

  MathScalar product() {
    MathScalar left = unary();
    while (!done()) {
      if (is_one_of(tokens_[at_], {"*", "\\times", "\\cdot"})) {
        ++at_;
        left = plain(left.value * unary().value);
      } else if (is_one_of(tokens_[at_], {"/", "\\div", ":"})) {
        ++at_;
        left = quotient(left, unary());
      } else {
        break;
      }
    }
    return left;
  }

  static MathScalar quotient(const MathScalar& above, const MathScalar& below) {
    MathScalar result = plain(above.value / below.value);
    result.number = is_integer_number(above) && is_integer_number(below);
    return result;
  }

  MathScalar unary() {
    bool negative = false;
    while (next_is("+") || next_is("-")) negative ^= tokens_[at_++].is("-");
    MathScalar inner = juxtaposed();
    if (!negative) return inner;
    MathScalar result = plain(-inner.value);
    result.number = inner.number;
    result.decimal = inner.number && inner.decimal;
    return result;
  }

  [[nodiscard]] bool factor_ahead() const {
    if (done()) return false;
    const MathToken& token = tokens_[at_];
    if (token.kind == Kind::punctuation) return token.is("(") || token.is("{") || token.is("[") || token.is("|");
    if (token.kind == Kind::environment) return false;
    if (token.kind != Kind::command) return true;
    return !closes(token) && !is_one_of(token, {"\\times", "\\cdot", "\\div",      "\\approx",   "\\pm",  "\\mp",
                                                "\\in",    "\\cup",  "\\cap",      "\\setminus", "\\leq", "\\le",
                                                "\\geq",   "\\ge",   "\\lt",       "\\gt",       "\\ne",  "\\neq",
                                                "\\equiv", "\\\\",   "\\leqslant", "\\geqslant"});
  }

  // Factors side by side multiply; but a whole number and a positive number behind it are a mixed fraction, so that
  // "2(3)" is 5, as in the reference.
  MathScalar juxtaposed() {
    std::vector<MathScalar> factors;
    do factors.push_back(postfix());
    while (factor_ahead());
    MathScalar right = std::move(factors.back());
    for (std::size_t i = factors.size() - 1; i-- > 0;) right = beside(factors[i], right);
    return right;
  }

  static MathScalar beside(const MathScalar& left, const MathScalar& right) {
    if (is_integer_number(left) && right.number && !right.decimal && right.value.rational()->is_positive()) {
      const Rational whole = *left.value.rational();
      const Rational part = *right.value.rational();
      return number(whole.is_negative() ? whole - part : whole + part);
    }
    MathScalar result = plain(left.value * right.value);
    if (!left.letters.empty() && !right.letters.empty()) result.letters = left.letters + right.letters;
    return result;
  }

  MathScalar postfix() {
    MathScalar base = comp();
    for (;;) {
      if (accept("!")) {
        base = plain(MathExpression(factorial(base)));
      } else if (next_is("^")) {
        ++at_;
        if (!degree()) base = plain(base.value.power(exponent().value));
      } else {
        return base;
      }
    }
  }

  // "^\circ" and "^{\circ}" are dropped.
  bool degree() {
    const auto is_circle = [](const MathToken& token) { return is_one_of(token, {"\\circ", "\\degree", "\\circle"}); };
    const bool braced = next_is("{");
    const std::size_t sign = at_ + (braced ? 1 : 0);
    if (sign >= tokens_.size() || !is_circle(tokens_[sign]) || (braced && !is_at(sign + 1, "}"))) return false;
    at_ = sign + (braced ? 2 : 1);
    return true;
  }

  MathScalar exponent() {
    if (next_is("{")) return group("{", "}");
    if (done() || tokens_[at_].kind == Kind::punctuation || next_is("\\frac") || next_is("\\sqrt")) throw SyntaxError();
    return comp();
  }

  static Rational factorial(const MathScalar& scalar) {
    const auto value = scalar.value.rational();
    if (!value || !value->is_integer() || value->is_negative() || value->numerator() > 33) throw BeyondDomain();
    Rational product = 1;
    for (Int128 i = 2; i <= value->numerator(); ++i) product = product * i;
    return product;
  }

  MathScalar group(std::string_view open, std::string_view close) {
    expect(open);
    MathScalar inner = additive();
    expect(close);
    return inner;
  }

  MathScalar comp() {
    if (done()) throw SyntaxError();
    const MathToken token = tokens_[at_];
    switch (token.kind) {
      case Kind::number:
        ++at_;
        subscript();
        return number(Rational::from_decimal(token.text), token.text.find('.') != std::string::npos);
      case Kind::percentage: {
        ++at_;
        MathScalar scalar = plain(MathExpression(Rational::from_decimal(token.text) / 100));
        scalar.percent = true;
        scalar.decimal = token.text.find('.') != std::string::npos;
        return scalar;
      }
      case Kind::letter:
        return letter();
      case Kind::named:
        ++at_;
        return symbol(token.text + subscript());
      case Kind::command:
        return command();
      case Kind::punctuation:
        if (token.is("(")) return group("(", ")");
        if (token.is("{")) return group("{", "}");
        if (token.is("[")) return group("[", "]");
        if (token.is("|")) throw BeyondDomain();
        throw SyntaxError();
      case Kind::environment:
        throw BeyondDomain();
    }
    throw SyntaxError();
  }

  MathScalar letter() {
    const std::string name = tokens_[at_++].text;
    if (name == "I") throw BeyondDomain();  // the imaginary unit
    if (name == "e") {
      MathScalar constant = plain(MathExpression::generator("\\e"));
      constant.letters = "e";
      return constant;
    }
    const std::string index = subscript();
    if (applied()) throw BeyondDomain();
    return symbol(name + index);
  }

  // A symbol before "(x)" or "(x, y)" is a function; before "(x + 1)" a factor.
  [[nodiscard]] bool applied() const {
    if (!next_is("(") && !next_is("[")) return false;
    const std::size_t close = matching(at_);
    return close <= at_ + 2 || count_outside(at_ + 1, close, separates) > 0;
  }

  // "_1", "_{n+1}": the text behind a symbol's name. A number's (its base) is read and dropped.
  std::string subscript() {
    if (!accept("_")) return {};
    if (done()) throw SyntaxError();
    std::string text = "_";
    const std::size_t last = next_is("{") ? matching(at_) : at_;
    for (; at_ <= last; ++at_) {
      if (!tokens_[at_].is("{") && !tokens_[at_].is("}")) text += tokens_[at_].text;
    }
    return text;
  }

  MathScalar command() {
    const std::string name = tokens_[at_++].text;
    if (name == "\\frac") {
      const MathScalar above = group("{", "}");
      return quotient(above, group("{", "}"));
    }
    if (name == "\\sqrt") {
      MathExpression index(Rational(2));
      if (next_is("[")) index = group("[", "]").value;
      return plain(group("{", "}").value.power(MathExpression(Rational(1)) / index));
    }
    if (name == "\\binom" || name == "\\tbinom" || name == "\\dbinom") {
      const MathScalar above = group("{", "}");
      const MathScalar below = group("{", "}");
      const MathScalar rest = plain(above.value - below.value);
      return number(factorial(above) / (factorial(below) * factorial(rest)));
    }
    if (name == "\\boxed") return group("{", "}");
    if (name == "\\{" || name == "\\lbrace") {
      --at_;
      return group(name, name == "\\{" ? "\\}" : "\\rbrace");
    }
    if (name == "\\pi") return plain(MathExpression::generator("\\pi"));
    if (name == "\\infty") return plain(MathExpression::generator("\\infty"));
    if (std::ranges::find(kGreek, name) != kGreek.end()) {
      const std::string index = subscript();
      if (applied()) throw BeyondDomain();
      return symbol(name.substr(1) + index);
    }
    throw BeyondDomain();
  }

  std::vector<MathToken> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
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
      return make(number(*value, text.find('.') != std::string_view::npos));
    }
    std::optional<std::vector<MathToken>> tokens = tokenize_latex(text);
    if (!tokens || tokens->empty()) return std::nullopt;
    return Parser(std::move(*tokens)).whole();
  } catch (const SyntaxError&) {
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
