// Parses the expressions of a chat template: recursive descent with Jinja's operator precedences.
#pragma once

#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace hone {

class TemplateExpressionParser {
 public:
  explicit TemplateExpressionParser(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  // Access to the tokens; the statement parser uses it too.
  [[nodiscard]] const TemplateToken& token() const { return tokens_[at_]; }
  [[nodiscard]] bool at(TemplateToken::Kind kind) const { return token().kind == kind; }
  [[nodiscard]] bool at_operator(std::string_view text) const {
    return token().is(TemplateToken::Kind::kOperator, text);
  }
  [[nodiscard]] bool at_name(std::string_view text) const { return token().is(TemplateToken::Kind::kName, text); }
  bool accept_operator(std::string_view text);
  bool accept_name(std::string_view text);
  void expect_operator(std::string_view text);
  std::string expect_name();
  TemplateToken next() { return at(TemplateToken::Kind::kEnd) ? tokens_[at_] : tokens_[at_++]; }
  void expect(TemplateToken::Kind kind, std::string_view what);
  // place() is the position of the current token. mentions() returns true if `name` occurs between `begin` and there.
  [[nodiscard]] std::size_t place() const { return at_; }
  [[nodiscard]] bool mentions(std::size_t begin, std::string_view name) const;
  [[noreturn]] void fail(std::string_view what) const { fail_in_template(token().line, what); }

  // Parses one expression, or a tuple of expressions without brackets.
  ExpressionPtr parse_expression();
  ExpressionPtr parse_tuple();
  // Parses like parse_tuple, but without "a if b else c": the source after "in" of a loop.
  ExpressionPtr parse_loop_source();
  // Parses the left side of an assignment: a name, namespace.field, or a tuple of names.
  ExpressionPtr parse_target(bool with_namespace);
  // Parses the filters of a block: | filter | filter ... without a subject. `first_given`: the first filter has no "|".
  ExpressionPtr parse_block_filters(bool first_given);
  // Parses (name, name=expression, ...).
  std::vector<MacroParameter> parse_parameters();

 private:
  // Counts the nesting of the parser's calls and the depth of the tree, and fails before either overflows the stack.
  class Nesting {
   public:
    explicit Nesting(TemplateExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kDeepestCall) parser_.fail("expression nested too deep");
    }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() { --parser_.depth_; }
    void count() {
      if (++links_ > kLongestChain) parser_.fail("expression too long");
    }

   private:
    static constexpr int kDeepestCall = 1000;  // the parser's own calls; a pair of brackets takes about ten
    static constexpr int kLongestChain = 200;  // operators, subscripts and filters in a row; each makes the tree deeper

    TemplateExpressionParser& parser_;
    int links_ = 0;
  };

  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_postfix(ExpressionPtr expression);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr expression);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_filter(ExpressionPtr subject);
  ExpressionPtr parse_test(ExpressionPtr subject);
  ExpressionPtr parse_bracketed();
  ExpressionPtr parse_dict();
  void parse_arguments(Expression& call);
  [[nodiscard]] ExpressionPtr make(Expression::Kind kind) const;
  [[nodiscard]] ExpressionPtr make(Expression::Kind kind, ExpressionPtr first, ExpressionPtr second = nullptr) const;
  [[nodiscard]] bool at_tuple_end() const;

  std::vector<TemplateToken> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace hone
