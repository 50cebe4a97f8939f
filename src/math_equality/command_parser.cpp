// Part of ExpressionParser for LaTeX commands: functions, fractions, roots, sums and products.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "math_equality/algebra.h"
#include "math_equality/expression_parser.h"

namespace hone {
namespace {

constexpr std::array kGreek = std::to_array<std::string_view>(
    {"\\alpha",  "\\beta",     "\\delta",    "\\Delta",   "\\epsilon", "\\varepsilon", "\\zeta",   "\\eta",
     "\\theta",  "\\Theta",    "\\vartheta", "\\iota",    "\\kappa",   "\\lambda",     "\\Lambda", "\\mu",
     "\\nu",     "\\xi",       "\\Xi",       "\\omicron", "\\Pi",      "\\varpi",      "\\rho",    "\\varrho",
     "\\sigma",  "\\Sigma",    "\\varsigma", "\\tau",     "\\upsilon", "\\Upsilon",    "\\phi",    "\\Phi",
     "\\varphi", "\\chi",      "\\psi",      "\\Psi",     "\\omega",   "\\Omega",      "\\ell",    "\\hbar",
     "\\angle",  "\\triangle", "\\square",   "\\prime",   "\\imath",   "\\jmath",      "\\nabla",  "\\partial"});

// Functions of one argument: LaTeX command and name in expression trees.
constexpr std::array kFunctions = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"\\sin", "sin"},       {"\\cos", "cos"},      {"\\tan", "tan"},       {"\\cot", "cot"},
     {"\\sec", "sec"},       {"\\csc", "csc"},      {"\\arcsin", "asin"},   {"\\arccos", "acos"},
     {"\\arctan", "atan"},   {"\\arccot", "acot"},  {"\\arcsec", "asec"},   {"\\arccsc", "acsc"},
     {"\\sinh", "sinh"},     {"\\cosh", "cosh"},    {"\\tanh", "tanh"},     {"\\arsinh", "asinh"},
     {"\\arcosh", "acosh"},  {"\\artanh", "atanh"}, {"\\arcsinh", "asinh"}, {"\\arccosh", "acosh"},
     {"\\arctanh", "atanh"}, {"\\exp", "exp"},      {"\\floor", "floor"},   {"\\ceil", "ceil"}});

constexpr int kMostRepetitions = 500;  // maximum number of terms of \sum and factors of \prod

std::string_view function_named(std::string_view command) {
  const auto place = std::ranges::find(kFunctions, command, &std::pair<std::string_view, std::string_view>::first);
  return place == kFunctions.end() ? std::string_view() : place->second;
}

}  // namespace

bool names_function(const MathToken& token) {
  return !function_named(token.text).empty() || is_one_of(token, {"\\log", "\\ln", "\\gcd", "\\lcm", "\\max", "\\min",
                                                                  "\\sum", "\\prod", "\\sqrt", "\\operatorname"});
}

// Parses the expression after "^" or "_".
MathTree ExpressionParser::script(std::string_view sign) {
  expect(sign);
  return exponent().value;
}

// Parses the argument of a function: a group in parentheses, or a product. An adjacent function ends the product. As in
// Math-Verify, "\sin x \cdot y" is the sine of the product.
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
      {Kind::kCommand, name}, {"\\sin", "\\cos", "\\tan", "\\cot", "\\sec", "\\csc", "\\sinh", "\\cosh", "\\tanh"});
  if (inverse && invertible) {
    known.insert(0, "a");
    power = nullptr;
  }
  const MathTree value = function_tree(known, {argument()});
  return plain_scalar(power ? power_tree(value, power) : value);
}

// Parses a logarithm. The default base of "\log" is 10.
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
  while (!done() && tokens_[at_].kind == Kind::kLetter) name += tokens_[at_++].text;
  expect("}");
  const std::string command = "\\" + name;
  if (!function_named(command).empty()) return function(command);
  if (name == "gcd" || name == "lcm") return extreme(command);
  throw BeyondDomain();
}

// Parses "\max(1, 2)", "\gcd(4, 6)" and the like.
MathScalar ExpressionParser::extreme(const std::string& name) {
  if (!next_is("(")) throw BeyondDomain();
  return plain_scalar(function_tree(name.substr(1), arguments()));
}

// Parses "\sum_{i=1}^{3} i" and expands it. Throws BeyondDomain if there are too many terms.
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
  if (is_one_of({Kind::kCommand, name}, {"\\gcd", "\\lcm", "\\max", "\\min"})) return extreme(name);
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
