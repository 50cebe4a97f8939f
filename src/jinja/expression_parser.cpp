#include "jinja/expression_parser.h"

#include <charconv>

#include "core/error.h"

namespace hone {
namespace {

using TokenKind = TemplateToken::Kind;
constexpr int kDeepestCall = 1000;  // of the parser's own calls: about ten for a pair of brackets
constexpr int kLongestChain = 200;  // of operators, subscripts and filters: each makes the tree one level deeper

}  // namespace

class TemplateExpressionParser::Nesting {
 public:
  explicit Nesting(TemplateExpressionParser& parser) : parser_(parser) {
    if (++parser_.depth_ > kDeepestCall) parser_.fail("an expression nested too deep");
  }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ~Nesting() { --parser_.depth_; }
  void count() {
    if (++links_ > kLongestChain) parser_.fail("an expression that is too long");
  }

 private:
  TemplateExpressionParser& parser_;
  int links_ = 0;
};

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
