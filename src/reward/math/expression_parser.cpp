#include "reward/math/expression_parser.h"

#include <array>

#include "reward/characters.h"

namespace hone {
namespace {

constexpr std::array kGreek = std::to_array<std::string_view>(
    {"\\alpha",  "\\beta",  "\\delta",    "\\Delta",    "\\epsilon", "\\varepsilon", "\\zeta",   "\\eta",
     "\\theta",  "\\Theta", "\\vartheta", "\\iota",     "\\kappa",   "\\lambda",     "\\Lambda", "\\mu",
     "\\nu",     "\\xi",    "\\Xi",       "\\omicron",  "\\Pi",      "\\varpi",      "\\rho",    "\\varrho",
     "\\sigma",  "\\Sigma", "\\varsigma", "\\tau",      "\\upsilon", "\\Upsilon",    "\\phi",    "\\Phi",
     "\\varphi", "\\chi",   "\\psi",      "\\Psi",      "\\omega",   "\\Omega",      "\\gamma",  "\\Gamma",
     "\\ell",    "\\hbar",  "\\angle",    "\\triangle", "\\square",  "\\prime"});

MathScalar symbol(std::string name) {
  std::ranges::transform(name, name.begin(), lower);
  MathScalar scalar = plain_scalar(MathExpression::generator("$" + name));  // "$": never a prime, never a constant
  scalar.letters = std::move(name);
  scalar.symbol = true;
  return scalar;
}

bool is_integer_number(const MathScalar& scalar) {
  if (!scalar.number || scalar.decimal) return false;
  const auto value = scalar.value.rational();
  return value && value->is_integer();
}

}  // namespace

bool is_one_of(const MathToken& token, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return token.is(word); });
}
bool opens_group(const MathToken& token) {
  return is_one_of(token, {"(", "[", "{", "\\{", "\\lbrace", "\\(", "\\lbrack"});
}
bool closes_group(const MathToken& token) {
  return is_one_of(token, {")", "]", "}", "\\}", "\\rbrace", "\\)", "\\rbrack"});
}
bool separates(const MathToken& token) { return token.is(",") || token.is(";"); }

MathScalar plain_scalar(MathExpression value) {
  MathScalar scalar;
  scalar.value = std::move(value);
  return scalar;
}

MathScalar number_scalar(const Rational& value, bool decimal) {
  MathScalar scalar = plain_scalar(MathExpression(value));
  scalar.number = true;
  scalar.decimal = decimal;
  return scalar;
}

MathScalar ExpressionParser::additive() {
  const Deeper deeper(depth_);
  MathScalar left = product();
  for (;;) {
    if (accept("+")) {
      left = plain_scalar(left.value + product().value);
    } else if (accept("-")) {
      left = plain_scalar(left.value - product().value);
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
      left = plain_scalar(left.value * unary().value);
    } else if (is_one_of(tokens_[at_], {"/", "\\div", ":"})) {
      ++at_;
      left = quotient(left, unary());
    } else {
      break;
    }
  }
  return left;
}

MathScalar ExpressionParser::quotient(const MathScalar& above, const MathScalar& below) {
  MathScalar result = plain_scalar(above.value / below.value);
  result.number = is_integer_number(above) && is_integer_number(below);
  return result;
}

MathScalar ExpressionParser::unary() {
  bool negative = false;
  while (next_is("+") || next_is("-")) negative ^= tokens_[at_++].is("-");
  MathScalar inner = juxtaposed();
  if (!negative) return inner;
  MathScalar result = plain_scalar(-inner.value);
  result.number = inner.number;
  result.decimal = inner.number && inner.decimal;
  return result;
}

bool ExpressionParser::factor_ahead() const {
  if (done()) return false;
  const MathToken& token = tokens_[at_];
  if (token.kind == Kind::punctuation) return token.is("(") || token.is("{") || token.is("[") || token.is("|");
  if (token.kind == Kind::environment) return false;
  if (token.kind != Kind::command) return true;
  return !closes_group(token) &&
         !is_one_of(token, {"\\times", "\\cdot",     "\\div",   "\\approx", "\\pm",       "\\mp",      "\\in", "\\cup",
                            "\\cap",   "\\setminus", "\\leq",   "\\le",     "\\geq",      "\\ge",      "\\lt", "\\gt",
                            "\\ne",    "\\neq",      "\\equiv", "\\\\",     "\\leqslant", "\\geqslant"});
}

// Factors side by side multiply; but a whole number and a positive number behind it are a mixed fraction, so that
// "2(3)" is 5, as in the reference.
MathScalar ExpressionParser::juxtaposed() {
  std::vector<MathScalar> factors;
  do factors.push_back(postfix());
  while (factor_ahead());
  MathScalar right = std::move(factors.back());
  for (std::size_t i = factors.size() - 1; i-- > 0;) right = beside(factors[i], right);
  return right;
}

MathScalar ExpressionParser::beside(const MathScalar& left, const MathScalar& right) {
  if (is_integer_number(left) && right.number && !right.decimal && right.value.rational()->is_positive()) {
    const Rational whole = *left.value.rational();
    const Rational part = *right.value.rational();
    return number_scalar(whole.is_negative() ? whole - part : whole + part);
  }
  MathScalar result = plain_scalar(left.value * right.value);
  if (!left.letters.empty() && !right.letters.empty()) result.letters = left.letters + right.letters;
  return result;
}

MathScalar ExpressionParser::postfix() {
  MathScalar base = comp();
  for (;;) {
    if (accept("!")) {
      base = plain_scalar(MathExpression(factorial(base)));
    } else if (next_is("^")) {
      ++at_;
      if (!degree()) base = plain_scalar(base.value.power(exponent().value));
    } else {
      return base;
    }
  }
}

// "^\circ" and "^{\circ}" are dropped.
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
  if (done() || tokens_[at_].kind == Kind::punctuation || next_is("\\frac") || next_is("\\sqrt"))
    throw MathSyntaxError();
  return comp();
}

Rational ExpressionParser::factorial(const MathScalar& scalar) {
  const auto value = scalar.value.rational();
  if (!value || !value->is_integer() || value->is_negative() || value->numerator() > 33) throw BeyondDomain();
  Rational product = 1;
  for (Int128 i = 2; i <= value->numerator(); ++i) product = product * i;
  return product;
}

MathScalar ExpressionParser::group(std::string_view open, std::string_view close) {
  expect(open);
  MathScalar inner = additive();
  expect(close);
  return inner;
}

MathScalar ExpressionParser::comp() {
  if (done()) throw MathSyntaxError();
  const MathToken token = tokens_[at_];
  switch (token.kind) {
    case Kind::number:
      ++at_;
      subscript();
      return number_scalar(Rational::from_decimal(token.text), token.text.find('.') != std::string::npos);
    case Kind::percentage: {
      ++at_;
      MathScalar scalar = plain_scalar(MathExpression(Rational::from_decimal(token.text) / 100));
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
      throw MathSyntaxError();
    case Kind::environment:
      throw BeyondDomain();
  }
  throw MathSyntaxError();
}

MathScalar ExpressionParser::letter() {
  const std::string name = tokens_[at_++].text;
  if (name == "I") throw BeyondDomain();  // the imaginary unit
  if (name == "e") {
    MathScalar constant = plain_scalar(MathExpression::generator("\\e"));
    constant.letters = "e";
    return constant;
  }
  const std::string index = subscript();
  if (applied()) throw BeyondDomain();
  return symbol(name + index);
}

// A symbol before "(x)" or "(x, y)" is a function; before "(x + 1)" a factor.
bool ExpressionParser::applied() const {
  if (!next_is("(") && !next_is("[")) return false;
  const std::size_t close = matching(at_);
  return close <= at_ + 2 || count_outside(at_ + 1, close, separates) > 0;
}

// "_1", "_{n+1}": the text behind a symbol's name. A number's (its base) is read and dropped.
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

MathScalar ExpressionParser::command() {
  const std::string name = tokens_[at_++].text;
  if (name == "\\frac") {
    const MathScalar above = group("{", "}");
    return quotient(above, group("{", "}"));
  }
  if (name == "\\sqrt") {
    MathExpression index(Rational(2));
    if (next_is("[")) index = group("[", "]").value;
    return plain_scalar(group("{", "}").value.power(MathExpression(Rational(1)) / index));
  }
  if (name == "\\binom" || name == "\\tbinom" || name == "\\dbinom") {
    const MathScalar above = group("{", "}");
    const MathScalar below = group("{", "}");
    const MathScalar rest = plain_scalar(above.value - below.value);
    return number_scalar(factorial(above) / (factorial(below) * factorial(rest)));
  }
  if (name == "\\boxed") return group("{", "}");
  if (name == "\\{" || name == "\\lbrace") {
    --at_;
    return group(name, name == "\\{" ? "\\}" : "\\rbrace");
  }
  if (name == "\\pi") return plain_scalar(MathExpression::generator("\\pi"));
  if (name == "\\infty") return plain_scalar(MathExpression::generator("\\infty"));
  if (std::ranges::find(kGreek, name) != kGreek.end()) {
    const std::string index = subscript();
    if (applied()) throw BeyondDomain();
    return symbol(name.substr(1) + index);
  }
  throw BeyondDomain();
}

}  // namespace hone
