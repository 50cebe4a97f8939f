#include "jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "core/error.h"
#include "jinja/expression_parser.h"

namespace hone {
namespace {

using TokenKind = TemplateToken::Kind;
using StatementPtr = std::unique_ptr<Statement>;
constexpr int kDeepestBlock = 100;

class Parser {
 public:
  explicit Parser(std::string_view source) : in_(lex_template(source)) {}

  Block parse() {
    Block block = parse_block({});
    if (!in_.at(TokenKind::kEnd)) in_.fail("an unexpected end tag");
    return block;
  }

 private:
  static StatementPtr make(Statement::Kind kind, int line) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  // Parses statements up to a tag whose name is in `ends`; consumes its {% and name, but not the rest of the tag.
  Block parse_block(std::initializer_list<std::string_view> ends, std::string* ended_by = nullptr) {
    if (++depth_ > kDeepestBlock) in_.fail("blocks nested too deep");
    const int begin = in_.token().line;
    Block block;
    for (;;) {
      const int line = in_.token().line;
      if (in_.at(TokenKind::kEnd)) {
        if (ends.size() > 0) fail_in_template(begin, text_of("a block without its {% ", *(ends.end() - 1), " %}"));
        break;
      }
      if (in_.at(TokenKind::kText)) {
        block.push_back(make(Statement::Kind::kText, line));
        block.back()->text = in_.next().text;
      } else if (in_.at(TokenKind::kOutputBegin)) {
        in_.next();
        block.push_back(make(Statement::Kind::kOutput, line));
        block.back()->expression = in_.parse_tuple();
        in_.expect(TokenKind::kOutputEnd, "}}");
      } else {
        in_.expect(TokenKind::kBlockBegin, "a tag");
        std::string name = in_.expect_name();
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
          if (ended_by != nullptr) *ended_by = name;
          break;
        }
        block.push_back(parse_statement(name, line));
      }
    }
    --depth_;
    return block;
  }

  void end_tag() { in_.expect(TokenKind::kBlockEnd, "%}"); }

  Block parse_body(std::string_view end) {
    end_tag();
    Block body = parse_block({end});
    end_tag();
    return body;
  }

  StatementPtr parse_statement(const std::string& name, int line) {
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") return parse_macro(line);
    if (name == "call") return parse_call(line);
    if (name == "with") return parse_with(line);
    if (name == "filter") {
      StatementPtr statement = make(Statement::Kind::kFilterBlock, line);
      statement->expression = in_.parse_block_filters(true);
      statement->body = parse_body("endfilter");
      return statement;
    }
    if (name == "generation") {
      StatementPtr statement = make(Statement::Kind::kGeneration, line);
      statement->body = parse_body("endgeneration");
      return statement;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_in_template(line, text_of("{% ", name, " %} outside of a loop"));
      end_tag();
      return make(name == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue, line);
    }
    fail_in_template(line, text_of("the tag {% ", name, " %} is unknown or not allowed here"));
  }

  StatementPtr parse_if(int line) {
    StatementPtr statement = make(Statement::Kind::kIf, line);
    std::string ended_by = "if";
    while (ended_by != "endif") {
      ExpressionPtr condition = ended_by == "else" ? nullptr : in_.parse_tuple();
      end_tag();
      const bool is_else = condition == nullptr;
      Block body = is_else ? parse_block({"endif"}, &ended_by) : parse_block({"elif", "else", "endif"}, &ended_by);
      statement->branches.emplace_back(std::move(condition), std::move(body));
    }
    end_tag();
    return statement;
  }

  StatementPtr parse_for(int line) {
    StatementPtr statement = make(Statement::Kind::kFor, line);
    statement->target = in_.parse_target(false);
    if (!in_.accept_name("in")) in_.fail("expected 'in' in a for tag");
    statement->expression = in_.parse_loop_source();
    if (in_.accept_name("if")) statement->condition = in_.parse_expression();
    statement->recursive = in_.accept_name("recursive");
    end_tag();
    std::string ended_by;
    ++loops_;
    statement->body = parse_block({"else", "endfor"}, &ended_by);
    --loops_;
    if (ended_by == "else") {
      end_tag();
      statement->orelse = parse_block({"endfor"});
    }
    end_tag();
    return statement;
  }

  StatementPtr parse_set(int line) {
    StatementPtr statement = make(Statement::Kind::kSet, line);
    statement->target = in_.parse_target(true);
    if (in_.accept_operator("=")) {
      statement->expression = in_.parse_tuple();
      end_tag();
      return statement;
    }
    statement->kind = Statement::Kind::kSetBlock;
    statement->expression = in_.parse_block_filters(false);
    statement->body = parse_body("endset");
    return statement;
  }

  // A break or continue in a macro cannot refer to a loop around the macro.
  Block parse_function_body(std::string_view end) {
    const int loops = loops_;
    loops_ = 0;
    Block body = parse_body(end);
    loops_ = loops;
    return body;
  }

  StatementPtr parse_macro(int line) {
    StatementPtr statement = make(Statement::Kind::kMacro, line);
    statement->text = in_.expect_name();
    statement->parameters = in_.parse_parameters();
    const std::size_t begin = in_.place();
    statement->body = parse_function_body("endmacro");
    statement->takes_varargs = in_.mentions(begin, "varargs");
    statement->takes_kwargs = in_.mentions(begin, "kwargs");
    return statement;
  }

  StatementPtr parse_call(int line) {
    StatementPtr statement = make(Statement::Kind::kCallBlock, line);
    if (in_.at_operator("(")) statement->parameters = in_.parse_parameters();
    statement->expression = in_.parse_expression();
    if (statement->expression->kind != Expression::Kind::kCall) in_.fail("expected a call in a call tag");
    statement->body = parse_function_body("endcall");
    return statement;
  }

  StatementPtr parse_with(int line) {
    StatementPtr statement = make(Statement::Kind::kWith, line);
    while (!in_.at(TokenKind::kBlockEnd)) {
      if (!statement->assignments.empty()) in_.expect_operator(",");
      ExpressionPtr target = in_.parse_target(false);
      in_.expect_operator("=");
      statement->assignments.emplace_back(std::move(target), in_.parse_expression());
    }
    statement->body = parse_body("endwith");
    return statement;
  }

  TemplateExpressionParser in_;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view source) { return Parser(source).parse(); }

}  // namespace hone
