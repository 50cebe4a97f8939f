#include "math_equality/expression_parser.h"

#include <array>
#include <charconv>

#include "core/characters.h"
#include "math_equality/algebra.h"

namespace hone {
namespace {

MathScalar symbol(std::string name) {
  std::ranges::transform(name, name.begin(), lower);
  if (name == "pi") return plain_scalar(constant_tree("pi"));
  MathScalar scalar = plain_scalar(symbol_tree(name));
  scalar.letters = std::move(name);
  scalar.symbol = true;
  return scalar;
}

bool is_integer_number(const MathScalar& scalar) {
  return scalar.number && !scalar.decimal && integer_text(scalar.value).has_value();
}

bool is_sign(const MathTree& tree, int sign) { return compare_values(tree, number_tree(0)) == sign; }

// Writes a number such as "12" or "1.5E3" without an exponent.
std::string plain_digits(const std::string& text) {
  const std::size_t mark = text.find('E');
  if (mark == std::string::npos) return text;
  int power = 0;
  const char* begin = text.data() + mark + (text[mark + 1] == '+' ? 2 : 1);
  const auto read = std::from_chars(begin, text.data() + text.size(), power);
  if (read.ec != std::errc() || power > 400 || power < -400) throw BeyondDomain();
  std::string digits = text.substr(0, mark);
  const std::size_t point = std::min(digits.find('.'), digits.size());
  digits.erase(point, 1);
  const auto place = static_cast<std::ptrdiff_t>(point) + power;
  if (place <= 0) return "0." + std::string(static_cast<std::size_t>(-place), '0') + digits;
  const auto whole = static_cast<std::size_t>(place);
  if (whole >= digits.size()) return digits + std::string(whole - digits.size(), '0') + ".0";
  return digits.insert(whole, ".");
}

}  // namespace

bool is_one_of(const MathToken& token, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return token.is(word); });
}
bool opens_group(const MathToken& token) {
  return is_one_of(token, {"(", "[", "{", "\\{", "\\lbrace", "\\(", "\\lbrack", "\\lgroup"});
}
bool closes_group(const MathToken& token) {
  return is_one_of(token, {")", "]", "}", "\\}", "\\rbrace", "\\)", "\\rbrack", "\\rgroup"});
}
bool separates(const MathToken& token) { return token.is(",") || token.is(";"); }

MathScalar plain_scalar(MathTree value) {
  MathScalar scalar;
  scalar.value = std::move(value);
  return scalar;
}

MathScalar number_scalar(MathTree value, bool decimal) {
  MathScalar scalar = plain_scalar(std::move(value));
  scalar.number = true;
  scalar.decimal = decimal;
  return scalar;
}

MathValue make_value(MathValue::Kind kind, std::vector<MathValue> items) {
  MathValue value;
  value.kind = kind;
  value.items = std::move(items);
  return value;
}

MathValue make_value(MathScalar scalar) {
  MathValue value;
  value.scalar = std::move(scalar);
  return value;
}

MathScalar ExpressionParser::additive() {
  const Deeper deeper(depth_);
  MathScalar left = product();
  for (;;) {
    if (accept("+")) {
      left = plain_scalar(sum_tree(left.value, product().value));
    } else if (accept("-")) {
      left = plain_scalar(difference_tree(left.value, product().value));
    } else {
      return left;
    }
  }
}

MathScalar ExpressionParser::product() {
  MathScalar left = unary();
  while (!done()) {
    if (is_one_of(tokens_[at_], {"*", "\\times", "\\cdot"})) {
      ++at_;
      left = plain_scalar(product_tree(left.value, unary().value));
    } else if (is_one_of(tokens_[at_], {"/", "\\div", ":", "\\over"})) {
      ++at_;
      left = quotient(left, unary());
    } else if (accept("\\mod")) {
      left = plain_scalar(function_tree("mod", {left.value, unary().value}));
    } else {
      break;
    }
  }
  return left;
}

MathScalar ExpressionParser::quotient(const MathScalar& above, const MathScalar& below) {
  MathScalar result = plain_scalar(quotient_tree(above.value, below.value));
  result.number = is_integer_number(above) && is_integer_number(below);
  return result;
}

MathScalar ExpressionParser::unary(bool in_argument) {
  bool negative = false;
  while (next_is("+") || next_is("-")) negative ^= tokens_[at_++].is("-");
  MathScalar inner = juxtaposed(in_argument);
  if (!negative) return inner;
  MathScalar result = plain_scalar(negative_tree(inner.value));
  result.number = inner.number;
  result.decimal = inner.number && inner.decimal;
  return result;
}

// Inside the argument of a function without parentheses, a further function does not continue the product.
bool ExpressionParser::factor_ahead(bool in_argument) const {
  if (done()) return false;
  const MathToken& token = tokens_[at_];
  if (in_argument && names_function(token)) return false;
  if (token.is("|")) return !in_bars_;
  if (token.kind == Kind::kPunctuation) return token.is("(") || token.is("{") || token.is("[");
  if (token.kind == Kind::kNamedSet) return false;
  if (token.kind == Kind::kEnvironment) return token.text.starts_with("begin vmatrix");
  if (token.kind != Kind::kCommand) return true;
  return !closes_group(token) &&
         !is_one_of(token, {"\\times",  "\\cdot", "\\div",      "\\over",     "\\mod",      "\\approx",   "\\pm",
                            "\\mp",     "\\in",   "\\notin",    "\\cup",      "\\cap",      "\\setminus", "\\leq",
                            "\\le",     "\\geq",  "\\ge",       "\\lt",       "\\gt",       "\\ne",       "\\neq",
                            "\\equiv",  "\\\\",   "\\leqslant", "\\geqslant", "\\rvert",    "\\rfloor",   "\\rceil",
                            "\\rangle", "\\vert", "\\|",        "\\subset",   "\\subseteq", "\\supseteq"});
}

// Parses adjacent factors, which are multiplied. A whole number followed by a positive number is a mixed fraction, so
// "2(3)" is 5, as in Math-Verify.
MathScalar ExpressionParser::juxtaposed(bool in_argument) {
  std::vector<MathScalar> factors;
  do factors.push_back(postfix());
  while (factor_ahead(in_argument));
  MathScalar right = std::move(factors.back());
  for (std::size_t i = factors.size() - 1; i-- > 0;) right = beside(factors[i], right);
  return right;
}

MathScalar ExpressionParser::beside(const MathScalar& left, const MathScalar& right) {
  if (is_integer_number(left) && right.number && !right.decimal && is_sign(right.value, 1)) {
    const bool negative = is_sign(left.value, -1);
    return number_scalar(negative ? difference_tree(left.value, right.value) : sum_tree(left.value, right.value));
  }
  MathScalar result = plain_scalar(product_tree(left.value, right.value));
  if (!left.letters.empty() && !right.letters.empty()) result.letters = left.letters + right.letters;
  return result;
}

MathScalar ExpressionParser::postfix() {
  MathScalar base = comp();
  for (;;) {
    if (accept("!")) {
      base = plain_scalar(function_tree("factorial", {base.value}));
    } else if (next_is("^")) {
      ++at_;
      if (!degree()) base = plain_scalar(power_tree(base.value, exponent().value));
    } else {
      return base;
    }
  }
}

// Skips "\circ" or "{\circ}" after "^" and returns true if there is one.
bool ExpressionParser::degree() {
  const auto is_circle = [](const MathToken& token) { return is_one_of(token, {"\\circ", "\\degree", "\\circle"}); };
  const bool braced = next_is("{");
  const std::size_t sign = at_ + (braced ? 1 : 0);
  if (sign >= tokens_.size() || !is_circle(tokens_[sign]) || (braced && !is_at(sign + 1, "}"))) return false;
  at_ = sign + (braced ? 2 : 1);
  return true;
}

MathScalar ExpressionParser::exponent() {
  if (next_is("{")) return group("{", "}");
  if (done() || tokens_[at_].kind == Kind::kPunctuation || next_is("\\frac") || names_function(tokens_[at_]))
    throw MathSyntaxError();
  return comp();
}

MathScalar ExpressionParser::group(std::string_view open, std::string_view close) {
  const bool outside = std::exchange(in_bars_, false);
  expect(open);
  MathScalar inner = additive();
  expect(close);
  in_bars_ = outside;
  return inner;
}

MathScalar ExpressionParser::number() {
  const MathToken& token = tokens_[at_++];
  const std::string digits = plain_digits(token.text);
  const bool decimal = digits.find('.') != std::string::npos;
  if (token.kind == Kind::kNumber) {
    subscript();
    return number_scalar(number_tree(digits), decimal);
  }
  MathScalar scalar = plain_scalar(quotient_tree(number_tree(digits), number_tree(100)));
  scalar.percent = true;
  scalar.decimal = decimal;
  return scalar;
}

MathScalar ExpressionParser::comp() {
  if (done()) throw MathSyntaxError();
  const Deeper deeper(depth_);
  const MathToken token = tokens_[at_];
  switch (token.kind) {
    case Kind::kNumber:
    case Kind::kPercentage:
      return number();
    case Kind::kLetter:
      return letter();
    case Kind::kNamed:
      ++at_;
      return symbol_or_call(token.text);
    case Kind::kCommand:
      return command();
    case Kind::kPunctuation:
      if (token.is("(")) return group("(", ")");
      if (token.is("{")) return group("{", "}");
      if (token.is("[")) return group("[", "]");
      if (token.is("|")) {
        ++at_;
        const bool outside = std::exchange(in_bars_, true);
        MathScalar inner = additive();
        in_bars_ = outside;
        expect("|");
        return plain_scalar(function_tree("abs", {inner.value}));
      }
      throw MathSyntaxError();
    case Kind::kNamedSet:
      throw MathSyntaxError();
    case Kind::kEnvironment:
      throw BeyondDomain();
  }
  throw MathSyntaxError();
}

MathScalar ExpressionParser::letter() {
  const std::string name = tokens_[at_++].text;
  if (name == "I") return plain_scalar(constant_tree("i"));
  if (name == "e") {
    MathScalar constant = plain_scalar(constant_tree("e"));
    constant.letters = "e";
    return constant;
  }
  return symbol_or_call(name);
}

MathScalar ExpressionParser::symbol_or_call(std::string name) {
  name += subscript();
  if (!applied()) return symbol(std::move(name));
  return plain_scalar(unknown_tree(name, arguments()));
}

// Returns true if the symbol before this group is a function: before "(x)" or "(x, y)", but not before "(x + 1)".
bool ExpressionParser::applied() const {
  if (!next_is("(") && !next_is("[")) return false;
  const std::size_t close = matching(at_);
  return close == at_ + 2 || count_outside(at_ + 1, close, separates) > 0;
}

std::vector<MathTree> ExpressionParser::arguments() {
  std::vector<MathTree> all;
  ++at_;
  do all.push_back(additive().value);
  while (accept(","));
  if (done() || !closes_group(tokens_[at_])) throw MathSyntaxError();
  ++at_;
  return all;
}

// Parses a subscript such as "_1" or "_{n+1}" and returns it as a part of the symbol's name. The caller drops the
// subscript of a number, which is its base.
std::string ExpressionParser::subscript() {
  if (!accept("_")) return {};
  if (done()) throw MathSyntaxError();
  std::string text = "_";
  const std::size_t last = next_is("{") ? matching(at_) : at_;
  for (; at_ <= last; ++at_) {
    if (!tokens_[at_].is("{") && !tokens_[at_].is("}")) text += tokens_[at_].text;
  }
  return text;
}

}  // namespace hone
