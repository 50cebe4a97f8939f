#include "reward/math/expression_parser.h"

#include <array>
#include <charconv>

#include "reward/characters.h"
#include "reward/math/algebra.h"

namespace hone {
namespace {

constexpr std::array kGreek = std::to_array<std::string_view>(
    {"\\alpha",  "\\beta",     "\\delta",    "\\Delta",   "\\epsilon", "\\varepsilon", "\\zeta",   "\\eta",
     "\\theta",  "\\Theta",    "\\vartheta", "\\iota",    "\\kappa",   "\\lambda",     "\\Lambda", "\\mu",
     "\\nu",     "\\xi",       "\\Xi",       "\\omicron", "\\Pi",      "\\varpi",      "\\rho",    "\\varrho",
     "\\sigma",  "\\Sigma",    "\\varsigma", "\\tau",     "\\upsilon", "\\Upsilon",    "\\phi",    "\\Phi",
     "\\varphi", "\\chi",      "\\psi",      "\\Psi",     "\\omega",   "\\Omega",      "\\ell",    "\\hbar",
     "\\angle",  "\\triangle", "\\square",   "\\prime",   "\\imath",   "\\jmath",      "\\nabla",  "\\partial"});

// Functions of one argument: as LaTeX and as algebra.h have them.
constexpr std::array kFunctions = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"\\sin", "sin"},       {"\\cos", "cos"},      {"\\tan", "tan"},       {"\\cot", "cot"},
     {"\\sec", "sec"},       {"\\csc", "csc"},      {"\\arcsin", "asin"},   {"\\arccos", "acos"},
     {"\\arctan", "atan"},   {"\\arccot", "acot"},  {"\\arcsec", "asec"},   {"\\arccsc", "acsc"},
     {"\\sinh", "sinh"},     {"\\cosh", "cosh"},    {"\\tanh", "tanh"},     {"\\arsinh", "asinh"},
     {"\\arcosh", "acosh"},  {"\\artanh", "atanh"}, {"\\arcsinh", "asinh"}, {"\\arccosh", "acosh"},
     {"\\arctanh", "atanh"}, {"\\exp", "exp"},      {"\\floor", "floor"},   {"\\ceil", "ceil"}});

constexpr int kMostRepetitions = 500;  // of a written-out sum or product

std::string_view function_named(std::string_view command) {
  const auto place = std::ranges::find(kFunctions, command, &std::pair<std::string_view, std::string_view>::first);
  return place == kFunctions.end() ? std::string_view() : place->second;
}

bool names_function(const MathToken& token) {
  return !function_named(token.text).empty() || is_one_of(token, {"\\log", "\\ln", "\\gcd", "\\lcm", "\\max", "\\min",
                                                                  "\\sum", "\\prod", "\\sqrt", "\\operatorname"});
}

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

// "12", "1.5E3" in plain digits.
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

// What may follow a factor as the next one; in a function's argument without parentheses no function may.
bool ExpressionParser::factor_ahead(bool in_argument) const {
  if (done()) return false;
  const MathToken& token = tokens_[at_];
  if (in_argument && names_function(token)) return false;
  if (token.is("|")) return !in_bars_;
  if (token.kind == Kind::punctuation) return token.is("(") || token.is("{") || token.is("[");
  if (token.kind == Kind::named_set) return false;
  if (token.kind == Kind::environment) return token.text.starts_with("begin vmatrix");
  if (token.kind != Kind::command) return true;
  return !closes_group(token) &&
         !is_one_of(token, {"\\times",  "\\cdot", "\\div",      "\\over",     "\\mod",      "\\approx",   "\\pm",
                            "\\mp",     "\\in",   "\\notin",    "\\cup",      "\\cap",      "\\setminus", "\\leq",
                            "\\le",     "\\geq",  "\\ge",       "\\lt",       "\\gt",       "\\ne",       "\\neq",
                            "\\equiv",  "\\\\",   "\\leqslant", "\\geqslant", "\\rvert",    "\\rfloor",   "\\rceil",
                            "\\rangle", "\\vert", "\\|",        "\\subset",   "\\subseteq", "\\supseteq"});
}

// Factors side by side multiply; but a whole number and a positive number behind it are a mixed fraction, so that
// "2(3)" is 5, as in the reference.
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
  if (done() || tokens_[at_].kind == Kind::punctuation || next_is("\\frac") || names_function(tokens_[at_]))
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
  if (token.kind == Kind::number) {
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
    case Kind::number:
    case Kind::percentage:
      return number();
    case Kind::letter:
      return letter();
    case Kind::named:
      ++at_;
      return symbol_or_call(token.text);
    case Kind::command:
      return command();
    case Kind::punctuation:
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
    case Kind::named_set:
      throw MathSyntaxError();
    case Kind::environment:
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

// A symbol before "(x)" or "(x, y)" is a function; before "(x + 1)" a factor.
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

// The expression behind "^" or "_".
MathTree ExpressionParser::script(std::string_view sign) {
  expect(sign);
  return exponent().value;
}

// A function's: in parentheses, or a product in which no further function stands side by side; "\sin x \cdot y" is the
// sine of the product, as in the reference.
MathTree ExpressionParser::argument() {
  if (next_is("(")) return group("(", ")").value;
  const Deeper deeper(depth_);
  MathScalar left = unary(true);
  while (!done() && is_one_of(tokens_[at_], {"*", "\\times", "\\cdot", "/", "\\div", ":", "\\over"})) {
    const bool divides = is_one_of(tokens_[at_], {"/", "\\div", ":", "\\over"});
    ++at_;
    const MathScalar right = unary(true);
    left = plain_scalar(divides ? quotient_tree(left.value, right.value) : product_tree(left.value, right.value));
  }
  return left.value;
}

MathScalar ExpressionParser::function(const std::string& name) {
  MathTree power;
  if (next_is("^")) power = script("^");
  std::string known(function_named(name));
  const bool inverse = power && integer_text(power) == "-1";
  const bool invertible = is_one_of(
      {Kind::command, name}, {"\\sin", "\\cos", "\\tan", "\\cot", "\\sec", "\\csc", "\\sinh", "\\cosh", "\\tanh"});
  if (inverse && invertible) {
    known.insert(0, "a");
    power = nullptr;
  }
  const MathTree value = function_tree(known, {argument()});
  return plain_scalar(power ? power_tree(value, power) : value);
}

// "\log" is to base 10.
MathScalar ExpressionParser::logarithm(const std::string& name) {
  MathTree base = name == "\\ln" ? nullptr : number_tree(10);
  MathTree power;
  for (int i = 0; i < 2; ++i) {
    if (next_is("_")) base = script("_");
    if (next_is("^")) power = script("^");
  }
  std::vector<MathTree> both = {argument()};
  if (base) both.push_back(base);
  const MathTree value = function_tree("log", std::move(both));
  return plain_scalar(power ? power_tree(value, power) : value);
}

MathScalar ExpressionParser::operator_name() {
  expect("{");
  std::string name;
  while (!done() && tokens_[at_].kind == Kind::letter) name += tokens_[at_++].text;
  expect("}");
  const std::string command = "\\" + name;
  if (!function_named(command).empty()) return function(command);
  if (name == "gcd" || name == "lcm") return extreme(command);
  throw BeyondDomain();
}

// "\max(1, 2)", "\gcd(4, 6)"
MathScalar ExpressionParser::extreme(const std::string& name) {
  if (!next_is("(")) throw BeyondDomain();
  return plain_scalar(function_tree(name.substr(1), arguments()));
}

// "\sum_{i=1}^{3} i", written out where the bounds are near each other.
MathScalar ExpressionParser::repeated(bool sum) {
  MathTree last;
  if (next_is("^")) last = script("^");
  expect("_");
  expect("{");
  const MathScalar index = comp();
  expect("=");
  const auto first = integer_text(additive().value);
  expect("}");
  if (!last) last = script("^");
  const MathTree body = argument();
  const auto end = integer_text(last);
  if (!index.symbol || !first || !end || first->size() > 6 || end->size() > 6) throw BeyondDomain();
  const int from = std::stoi(*first);
  const int to = std::stoi(*end);
  if (to - from > kMostRepetitions) throw BeyondDomain();
  MathTree total = number_tree(sum ? 0 : 1);
  for (int i = from; i <= to; ++i) {
    const MathTree next = substituted(body, index.letters, number_tree(i));
    total = sum ? sum_tree(total, next) : product_tree(total, next);
  }
  return plain_scalar(total);
}

MathScalar ExpressionParser::command() {
  const std::string name = tokens_[at_++].text;
  if (name == "\\frac") {
    const MathScalar above = group("{", "}");
    return quotient(above, group("{", "}"));
  }
  if (name == "\\sqrt") {
    if (!next_is("[")) return plain_scalar(root_tree(group("{", "}").value));
    const MathTree index = group("[", "]").value;
    return plain_scalar(power_tree(group("{", "}").value, quotient_tree(number_tree(1), index)));
  }
  if (name == "\\binom" || name == "\\tbinom" || name == "\\dbinom") {
    const MathTree above = group("{", "}").value;
    const MathScalar value = plain_scalar(function_tree("binomial", {above, group("{", "}").value}));
    return integer_text(value.value) ? number_scalar(value.value) : value;
  }
  if (name == "\\boxed" || name == "\\phantom") return group("{", "}");
  if (name == "\\{" || name == "\\lbrace" || name == "\\lgroup" || name == "\\lbrack") {
    --at_;
    return group(name, name == "\\{"        ? "\\}"
                       : name == "\\lbrace" ? "\\rbrace"
                       : name == "\\lgroup" ? "\\rgroup"
                                            : "\\rbrack");
  }
  for (const auto& [open, close, meaning] : {std::array<std::string_view, 3>{"\\lvert", "\\rvert", "abs"},
                                             {"\\vert", "\\vert", "abs"},
                                             {"\\lfloor", "\\rfloor", "floor"},
                                             {"\\lceil", "\\rceil", "ceil"}}) {
    if (name != open) continue;
    const MathTree inner = additive().value;
    expect(close);
    return plain_scalar(function_tree(meaning, {inner}));
  }
  if (!function_named(name).empty()) return function(name);
  if (name == "\\log" || name == "\\ln") return logarithm(name);
  if (name == "\\operatorname") return operator_name();
  if (is_one_of({Kind::command, name}, {"\\gcd", "\\lcm", "\\max", "\\min"})) return extreme(name);
  if (name == "\\sum" || name == "\\prod") return repeated(name == "\\sum");
  if (name == "\\pi") return plain_scalar(constant_tree("pi"));
  if (name == "\\infty") return plain_scalar(infinity_tree());
  if (name == "\\gamma" || name == "\\Gamma") {
    if (next_is("(")) return plain_scalar(function_tree("gamma", {group("(", ")").value}));
    return plain_scalar(constant_tree("gamma"));
  }
  if (std::ranges::find(kGreek, name) != kGreek.end()) return symbol_or_call(name.substr(1));
  throw BeyondDomain();
}

}  // namespace hone
