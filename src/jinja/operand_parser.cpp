// Parses operands of expressions: constants, names and brackets, followed by subscripts, calls, filters and tests.
#include <charconv>

#include "core/error.h"
#include "jinja/expression_parser.h"

namespace hone {
namespace {

using TokenKind = TemplateToken::Kind;

}  // namespace

ExpressionPtr TemplateExpressionParser::parse_primary() {
  ExpressionPtr expression = make(Expression::Kind::kConstant);
  const TemplateToken current = token();
  switch (current.kind) {
    case TokenKind::kName: {
      next();
      const std::string& name = current.text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        expression->value = name == "true" || name == "True";
      } else if (name == "none" || name == "None") {
        expression->value = None{};
      } else {
        expression->kind = Expression::Kind::kName;
        expression->name = name;
      }
      return expression;
    }
    case TokenKind::kString: {
      std::string text;
      while (at(TokenKind::kString)) text += next().text;
      expression->value = std::move(text);
      return expression;
    }
    case TokenKind::kInteger: {
      std::int64_t value = 0;
      const char* end = current.text.data() + current.text.size();
      if (std::from_chars(current.text.data(), end, value).ec != std::errc{})
        fail(text_of("the number ", current.text, " is too large"));
      next();
      expression->value = value;
      return expression;
    }
    case TokenKind::kFloat: {
      double value = 0;
      std::from_chars(current.text.data(), current.text.data() + current.text.size(), value);
      next();
      expression->value = value;
      return expression;
    }
    default:
      if (at_operator("(") || at_operator("[")) return parse_bracketed();
      if (at_operator("{")) return parse_dict();
      fail(current.text.empty() ? "an expression is missing" : text_of("an unexpected '", current.text, "'"));
  }
}

ExpressionPtr TemplateExpressionParser::parse_bracketed() {
  if (accept_operator("(")) {
    if (accept_operator(")")) return make(Expression::Kind::kTuple);
    ExpressionPtr inner = parse_tuple();
    expect_operator(")");
    return inner;
  }
  ExpressionPtr list = make(Expression::Kind::kList);
  next();
  while (!accept_operator("]")) {
    list->arguments.push_back(parse_expression());
    if (!at_operator("]")) expect_operator(",");
  }
  return list;
}

ExpressionPtr TemplateExpressionParser::parse_dict() {
  ExpressionPtr dict = make(Expression::Kind::kDict);
  next();
  while (!accept_operator("}")) {
    dict->arguments.push_back(parse_expression());
    expect_operator(":");
    dict->arguments.push_back(parse_expression());
    if (!at_operator("}")) expect_operator(",");
  }
  return dict;
}

ExpressionPtr TemplateExpressionParser::parse_postfix(ExpressionPtr expression) {
  Nesting nesting(*this);
  for (;; nesting.count()) {
    if (accept_operator(".")) {
      if (at(TokenKind::kInteger)) {
        ExpressionPtr index = parse_primary();
        expression = make(Expression::Kind::kItem, std::move(expression), std::move(index));
      } else {
        expression = make(Expression::Kind::kAttribute, std::move(expression));
        expression->name = expect_name();
      }
    } else if (accept_operator("[")) {
      expression = parse_subscript(std::move(expression));
    } else if (at_operator("(")) {
      expression = make(Expression::Kind::kCall, std::move(expression));
      parse_arguments(*expression);
    } else {
      return expression;
    }
  }
}

ExpressionPtr TemplateExpressionParser::parse_subscript(ExpressionPtr object) {
  ExpressionPtr first = at_operator(":") ? nullptr : parse_tuple();
  if (accept_operator("]")) return make(Expression::Kind::kItem, std::move(object), std::move(first));
  ExpressionPtr slice = make(Expression::Kind::kSlice, std::move(object));
  slice->arguments.push_back(std::move(first));
  for (int part = 0; part < 2; ++part) {
    const bool present = accept_operator(":") && !at_operator(":") && !at_operator("]");
    slice->arguments.push_back(present ? parse_expression() : nullptr);
  }
  expect_operator("]");
  return slice;
}

void TemplateExpressionParser::parse_arguments(Expression& call) {
  expect_operator("(");
  while (!accept_operator(")")) {
    if (at_operator("*") || at_operator("**")) {
      ExpressionPtr& spread = next().text == "*" ? call.spread : call.named_spread;
      if (spread) fail("a second * or ** in a call");
      spread = parse_expression();
    } else if (at(TokenKind::kName) && tokens_[at_ + 1].is(TokenKind::kOperator, "=")) {
      std::string name = next().text;
      next();
      call.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!call.named.empty() || call.spread || call.named_spread) fail("a positional argument after a named one");
      call.arguments.push_back(parse_expression());
    }
    if (!at_operator(")")) expect_operator(",");
  }
}

ExpressionPtr TemplateExpressionParser::parse_filters_and_tests(ExpressionPtr expression) {
  Nesting nesting(*this);
  for (;; nesting.count()) {
    if (accept_operator("|")) {
      expression = parse_filter(std::move(expression));
    } else if (accept_name("is")) {
      expression = parse_test(std::move(expression));
    } else if (at_operator("(")) {
      expression = make(Expression::Kind::kCall, std::move(expression));
      parse_arguments(*expression);
    } else {
      return expression;
    }
  }
}

ExpressionPtr TemplateExpressionParser::parse_filter(ExpressionPtr subject) {
  const int line = token().line;
  ExpressionPtr filter = make(Expression::Kind::kFilter, std::move(subject));
  filter->line = line;
  filter->name = expect_name();
  if (at_operator("(")) parse_arguments(*filter);
  return filter;
}

ExpressionPtr TemplateExpressionParser::parse_block_filters(bool first_given) {
  Nesting nesting(*this);
  ExpressionPtr filters = first_given ? parse_filter(nullptr) : nullptr;
  for (; accept_operator("|"); nesting.count()) filters = parse_filter(std::move(filters));
  return filters;
}

ExpressionPtr TemplateExpressionParser::parse_test(ExpressionPtr subject) {
  const bool negated = accept_name("not");
  ExpressionPtr test = make(Expression::Kind::kTest, std::move(subject));
  test->name = expect_name();
  const bool argument_follows =
      at(TokenKind::kString) || at(TokenKind::kInteger) || at(TokenKind::kFloat) || at_operator("[") ||
      at_operator("{") ||
      (at(TokenKind::kName) && !at_name("else") && !at_name("or") && !at_name("and") && !at_name("is") &&
       !at_name("if") && !at_name("not") && !at_name("in") && !at_name("recursive"));
  if (at_operator("(")) {
    parse_arguments(*test);
  } else if (at_name("is")) {
    fail("tests cannot be chained with is");
  } else if (argument_follows) {
    test->arguments.push_back(parse_postfix(parse_primary()));
  }
  return negated ? make(Expression::Kind::kNot, std::move(test)) : std::move(test);
}

}  // namespace hone
