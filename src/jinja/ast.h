// Syntax tree of a chat template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace hone {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    kConstant,   // value
    kName,       // name
    kList,       // arguments
    kTuple,      // arguments
    kDict,       // arguments: key, value, key, value ...
    kAttribute,  // arguments[0] . name
    kItem,       // arguments[0] [ arguments[1] ]
    kSlice,      // arguments[0] [ arguments[1] : [2] : [3] ], null if absent
    kCall,       // arguments[0] ( the rest, named )
    kFilter,     // arguments[0] | name ( the rest, named ); arguments[0] is null in a {% filter %} block
    kTest,       // arguments[0] is name ( the rest, named )
    kNot,
    kNegate,
    kPlus,
    kAnd,
    kOr,
    kArithmetic,   // name is the operator
    kCompare,      // arguments[0] operators[0] arguments[1] operators[1] ...
    kConcatenate,  // arguments joined as text
    kConditional,  // arguments[0] if arguments[1] else arguments[2] (null if absent)
  };
  Kind kind = Kind::kConstant;
  int line = 1;
  std::string name;
  TemplateValue value;
  std::vector<ExpressionPtr> arguments;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
  ExpressionPtr spread;        // kCall: the operand of *spread
  ExpressionPtr named_spread;  // kCall: the operand of **named_spread
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct MacroParameter {
  std::string name;
  ExpressionPtr fallback;  // default value; null: none
};

struct Statement {
  enum class Kind {
    kText,         // text
    kOutput,       // expression
    kIf,           // branches
    kFor,          // target in expression if condition (recursive): body, otherwise orelse
    kSet,          // target = expression
    kSetBlock,     // target = body, passed through the filters of expression
    kMacro,        // name(parameters): body
    kCallBlock,    // expression is the call; caller(parameters): body
    kFilterBlock,  // expression: filters applied to the body
    kWith,         // assignments: body
    kGeneration,   // body
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 1;
  std::string text;  // kText: the text; kMacro: the name
  ExpressionPtr target;
  ExpressionPtr expression;
  ExpressionPtr condition;
  std::vector<std::pair<ExpressionPtr, Block>> branches;  // condition and block; the condition of a final else is null
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;
  std::vector<MacroParameter> parameters;
  bool recursive = false;
  // The macro's body mentions varargs or kwargs, so it accepts any arguments.
  bool takes_varargs = false, takes_kwargs = false;
  Block body;
  Block orelse;
};

}  // namespace hone
