#include "jinja/expression_parser.h"

#include <algorithm>

#include "core/error.h"

namespace hone {
namespace {

using TokenKind = TemplateToken::Kind;

}  // namespace

bool TemplateExpressionParser::accept_operator(std::string_view text) {
  if (!at_operator(text)) return false;
  ++at_;
  return true;
}

bool TemplateExpressionParser::accept_name(std::string_view text) {
  if (!at_name(text)) return false;
  ++at_;
  return true;
}

void TemplateExpressionParser::expect_operator(std::string_view text) {
  if (!accept_operator(text)) fail(text_of("expected '", text, "' before '", token().text, "'"));
}

std::string TemplateExpressionParser::expect_name() {
  if (!at(TokenKind::kName)) fail(text_of("expected a name before '", token().text, "'"));
  return next().text;
}

void TemplateExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (!at(kind)) fail(text_of("expected ", what, " before '", token().text, "'"));
  ++at_;
}

bool TemplateExpressionParser::mentions(std::size_t begin, std::string_view name) const {
  return std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                     tokens_.begin() + static_cast<std::ptrdiff_t>(at_),
                     [&](const TemplateToken& token) { return token.is(TokenKind::kName, name); });
}

ExpressionPtr TemplateExpressionParser::make(Expression::Kind kind) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = token().line;
  return expression;
}

ExpressionPtr TemplateExpressionParser::make(Expression::Kind kind, ExpressionPtr first, ExpressionPtr second) const {
  ExpressionPtr expression = make(kind);
  expression->line = first ? first->line : token().line;
  expression->arguments.push_back(std::move(first));
  if (second) expression->arguments.push_back(std::move(second));
  return expression;
}

bool TemplateExpressionParser::at_tuple_end() const {
  return at(TokenKind::kOutputEnd) || at(TokenKind::kBlockEnd) || at(TokenKind::kEnd) || at_operator(")") ||
         at_operator("=") || at_name("in") || at_name("if") || at_name("recursive");
}

ExpressionPtr TemplateExpressionParser::parse_tuple() {
  ExpressionPtr first = parse_expression();
  if (!at_operator(",")) return first;
  ExpressionPtr tuple = make(Expression::Kind::kTuple, std::move(first));
  while (accept_operator(",") && !at_tuple_end()) tuple->arguments.push_back(parse_expression());
  return tuple;
}

ExpressionPtr TemplateExpressionParser::parse_loop_source() {
  ExpressionPtr first = parse_or();
  if (!at_operator(",")) return first;
  ExpressionPtr tuple = make(Expression::Kind::kTuple, std::move(first));
  while (accept_operator(",") && !at_tuple_end()) tuple->arguments.push_back(parse_or());
  return tuple;
}

ExpressionPtr TemplateExpressionParser::parse_target(bool with_namespace) {
  const Nesting nesting(*this);
  const auto one = [&]() -> ExpressionPtr {
    if (accept_operator("(")) {
      ExpressionPtr inner = parse_target(false);
      expect_operator(")");
      return inner;
    }
    ExpressionPtr name = make(Expression::Kind::kName);
    name->name = expect_name();
    for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (name->name == reserved) fail(text_of("cannot assign to ", reserved));
    }
    if (with_namespace && accept_operator(".")) {
      ExpressionPtr field = make(Expression::Kind::kAttribute, std::move(name));
      field->name = expect_name();
      return field;
    }
    return name;
  };
  ExpressionPtr first = one();
  if (!at_operator(",")) return first;
  ExpressionPtr tuple = make(Expression::Kind::kTuple, std::move(first));
  while (accept_operator(",") && !at_tuple_end()) tuple->arguments.push_back(one());
  return tuple;
}

ExpressionPtr TemplateExpressionParser::parse_expression() {
  Nesting nesting(*this);
  ExpressionPtr expression = parse_or();
  while (at_name("if")) {
    nesting.count();
    ExpressionPtr conditional = make(Expression::Kind::kConditional, std::move(expression));
    next();
    conditional->arguments.push_back(parse_or());
    conditional->arguments.push_back(accept_name("else") ? parse_expression() : nullptr);
    expression = std::move(conditional);
  }
  return expression;
}

ExpressionPtr TemplateExpressionParser::parse_or() {
  Nesting nesting(*this);
  ExpressionPtr left = parse_and();
  while (accept_name("or")) {
    nesting.count();
    ExpressionPtr right = parse_and();
    left = make(Expression::Kind::kOr, std::move(left), std::move(right));
  }
  return left;
}

ExpressionPtr TemplateExpressionParser::parse_and() {
  Nesting nesting(*this);
  ExpressionPtr left = parse_not();
  while (accept_name("and")) {
    nesting.count();
    ExpressionPtr right = parse_not();
    left = make(Expression::Kind::kAnd, std::move(left), std::move(right));
  }
  return left;
}

ExpressionPtr TemplateExpressionParser::parse_not() {
  const Nesting nesting(*this);
  if (!accept_name("not")) return parse_compare();
  return make(Expression::Kind::kNot, parse_not());
}

ExpressionPtr TemplateExpressionParser::parse_compare() {
  Nesting nesting(*this);
  ExpressionPtr left = parse_sum();
  ExpressionPtr compare;
  for (;;) {
    std::string name;
    if (at(TokenKind::kOperator)) {
      for (const char* known : {"==", "!=", "<", "<=", ">", ">="}) {
        if (at_operator(known)) name = known;
      }
      if (!name.empty()) next();
    } else if (accept_name("in")) {
      name = "in";
    } else if (at_name("not") && tokens_[at_ + 1].is(TokenKind::kName, "in")) {
      at_ += 2;
      name = "not in";
    }
    if (name.empty()) return compare ? std::move(compare) : std::move(left);
    nesting.count();
    if (!compare) compare = make(Expression::Kind::kCompare, std::move(left));
    compare->operators.push_back(name);
    compare->arguments.push_back(parse_sum());
  }
}

ExpressionPtr TemplateExpressionParser::parse_sum() {
  Nesting nesting(*this);
  ExpressionPtr left = parse_concatenation();
  while (at_operator("+") || at_operator("-")) {
    nesting.count();
    const std::string name = next().text;
    ExpressionPtr right = parse_concatenation();
    left = make(Expression::Kind::kArithmetic, std::move(left), std::move(right));
    left->name = name;
  }
  return left;
}

ExpressionPtr TemplateExpressionParser::parse_concatenation() {
  ExpressionPtr first = parse_product();
  if (!at_operator("~")) return first;
  ExpressionPtr joined = make(Expression::Kind::kConcatenate, std::move(first));
  while (accept_operator("~")) joined->arguments.push_back(parse_product());
  return joined;
}

ExpressionPtr TemplateExpressionParser::parse_product() {
  Nesting nesting(*this);
  ExpressionPtr left = parse_power();
  while (at_operator("*") || at_operator("/") || at_operator("//") || at_operator("%")) {
    nesting.count();
    const std::string name = next().text;
    ExpressionPtr right = parse_power();
    left = make(Expression::Kind::kArithmetic, std::move(left), std::move(right));
    left->name = name;
  }
  return left;
}

ExpressionPtr TemplateExpressionParser::parse_power() {
  Nesting nesting(*this);
  ExpressionPtr left = parse_unary(true);
  while (accept_operator("**")) {
    nesting.count();
    ExpressionPtr right = parse_unary(true);
    left = make(Expression::Kind::kArithmetic, std::move(left), std::move(right));
    left->name = "**";
  }
  return left;
}

ExpressionPtr TemplateExpressionParser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  ExpressionPtr expression;
  if (accept_operator("-")) {
    expression = make(Expression::Kind::kNegate, parse_unary(false));
  } else if (accept_operator("+")) {
    expression = make(Expression::Kind::kPlus, parse_unary(false));
  } else {
    expression = parse_primary();
  }
  expression = parse_postfix(std::move(expression));
  return with_filters ? parse_filters_and_tests(std::move(expression)) : std::move(expression);
}

std::vector<MacroParameter> TemplateExpressionParser::parse_parameters() {
  std::vector<MacroParameter> parameters;
  expect_operator("(");
  while (!accept_operator(")")) {
    MacroParameter parameter{expect_name(), nullptr};
    if (accept_operator("=")) {
      parameter.fallback = parse_expression();
    } else if (!parameters.empty() && parameters.back().fallback) {
      fail("a parameter without a default after one with");
    }
    parameters.push_back(std::move(parameter));
    if (!at_operator(")")) expect_operator(",");
  }
  return parameters;
}

}  // namespace hone
