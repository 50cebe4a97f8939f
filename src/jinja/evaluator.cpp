// Expression evaluation of TemplateRenderer.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "jinja/lexer.h"
#include "jinja/python_format.h"
#include "jinja/python_text.h"
#include "jinja/renderer.h"

namespace hone {
namespace {

constexpr std::int64_t kLongestText = 64 << 20;
constexpr std::int64_t kLongestList = 1'000'000;

[[noreturn]] void fail_operands(std::string_view name, const TemplateValue& a, const TemplateValue& b) {
  for (const TemplateValue* value : {&a, &b}) {
    if (value->is_undefined()) throw TemplateFailure(value->as<Undefined>().name);
  }
  throw TemplateFailure(text_of("unsupported operand types for ", name, ": ", a.type_name(), " and ", b.type_name()));
}

std::int64_t checked(bool overflows, std::int64_t value) {
  if (overflows) throw TemplateFailure("integer overflow: more than 64 bits");
  return value;
}

TemplateValue repeated(const TemplateValue& a, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  const auto size = static_cast<std::int64_t>(a.is_string() ? a.text().size() : a.items().size());
  if (size > 0 && times > (a.is_string() ? kLongestText : kLongestList) / size)
    throw TemplateFailure("the result of a repetition is too long");
  if (a.is_string()) {
    std::string text;
    for (std::int64_t i = 0; i < (size > 0 ? times : 0); ++i) text += a.text();
    return text;
  }
  std::vector<TemplateValue> items;
  for (std::int64_t i = 0; i < (size > 0 ? times : 0); ++i)
    items.insert(items.end(), a.items().begin(), a.items().end());
  return a.as<TemplateValue::List>()->is_tuple ? TemplateValue::tuple(std::move(items))
                                               : TemplateValue::list(std::move(items));
}

TemplateValue multiply(const TemplateValue& a, const TemplateValue& b) {
  if (a.is_integral() && b.is_integral()) {
    std::int64_t product = 0;
    const bool overflows = __builtin_mul_overflow(a.integer(), b.integer(), &product);
    return checked(overflows, product);
  }
  if (a.is_number() && b.is_number()) return a.number() * b.number();
  if ((a.is_string() || a.is_list()) && b.is_integral()) return repeated(a, b.integer());
  if ((b.is_string() || b.is_list()) && a.is_integral()) return repeated(b, a.integer());
  fail_operands("*", a, b);
}

// Python's // and %, which round towards minus infinity.
TemplateValue divide(const std::string& name, const TemplateValue& a, const TemplateValue& b) {
  if (!a.is_number() || !b.is_number()) fail_operands(name, a, b);
  if (b.number() == 0.0) throw TemplateFailure("division by zero");
  if (name == "/") return a.number() / b.number();
  if (!a.is_integral() || !b.is_integral()) {
    const double quotient = std::floor(a.number() / b.number());
    return name == "//" ? quotient : a.number() - quotient * b.number();
  }
  const std::int64_t x = a.integer(), y = b.integer();
  if (y == -1)
    return name == "%" ? TemplateValue(std::int64_t{0})
                       : TemplateValue(checked(x == INT64_MIN, x == INT64_MIN ? 0 : -x));
  const std::int64_t remainder = x % y;
  const bool adjust = remainder != 0 && (remainder < 0) != (y < 0);
  return name == "//" ? x / y - (adjust ? 1 : 0) : remainder + (adjust ? y : 0);
}

TemplateValue power(const TemplateValue& a, const TemplateValue& b) {
  if (!a.is_number() || !b.is_number()) fail_operands("**", a, b);
  if (!a.is_integral() || !b.is_integral() || b.integer() < 0) return std::pow(a.number(), b.number());
  const auto product = [](std::int64_t x, std::int64_t y) {
    std::int64_t value = 0;
    const bool overflows = __builtin_mul_overflow(x, y, &value);
    return checked(overflows, value);
  };
  std::int64_t result = 1, base = a.integer();
  for (std::int64_t left = b.integer(); left > 0; left >>= 1) {
    if ((left & 1) != 0) result = product(result, base);
    if (left > 1) base = product(base, base);
  }
  return result;
}

bool compare(const std::string& name, const TemplateValue& a, const TemplateValue& b) {
  if (name == "==") return equal(a, b);
  if (name == "!=") return !equal(a, b);
  if (name == "in") return contains(b, a);
  if (name == "not in") return !contains(b, a);
  if (a.is_undefined() || b.is_undefined()) fail_operands(name, a, b);
  if (name == "<") return less(a, b);
  if (name == ">") return less(b, a);
  if (name == "<=") return less(a, b) || equal(a, b);
  return less(b, a) || equal(a, b);
}

}  // namespace

TemplateValue add_values(const TemplateValue& a, const TemplateValue& b) {
  if (a.is_integral() && b.is_integral()) {
    std::int64_t sum = 0;
    const bool overflows = __builtin_add_overflow(a.integer(), b.integer(), &sum);
    return checked(overflows, sum);
  }
  if (a.is_number() && b.is_number()) return a.number() + b.number();
  if (a.is_string() && b.is_string()) return a.text() + b.text();
  if (a.is_list() && b.is_list() && a.as<TemplateValue::List>()->is_tuple == b.as<TemplateValue::List>()->is_tuple) {
    std::vector<TemplateValue> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    if (static_cast<std::int64_t>(items.size()) > kLongestList) throw TemplateFailure("a list is too long");
    return a.as<TemplateValue::List>()->is_tuple ? TemplateValue::tuple(std::move(items))
                                                 : TemplateValue::list(std::move(items));
  }
  fail_operands("+", a, b);
}

TemplateValue TemplateRenderer::evaluate(const Expression& expression) {
  try {
    const Depth depth(depth_);
    meter_.step();
    return evaluate_inner(expression);
  } catch (const TemplateFailure& failure) {
    fail_in_template(expression.line, failure.what());
  }
}

TemplateValue TemplateRenderer::evaluate_inner(const Expression& expression) {
  const auto& arguments = expression.arguments;
  switch (expression.kind) {
    case Expression::Kind::kConstant:
      return expression.value;
    case Expression::Kind::kName:
      return evaluate_name(expression);
    case Expression::Kind::kList:
      return TemplateValue::list(evaluate_all(expression, 0));
    case Expression::Kind::kTuple:
      return TemplateValue::tuple(evaluate_all(expression, 0));
    case Expression::Kind::kDict:
      return evaluate_dict(expression);
    case Expression::Kind::kAttribute:
      return get_attribute(evaluate(*arguments[0]), expression.name);
    case Expression::Kind::kItem: {
      const TemplateValue object = evaluate(*arguments[0]);
      return get_item(meter_, object, evaluate(*arguments[1]));
    }
    case Expression::Kind::kSlice:
      return evaluate_slice(expression);
    case Expression::Kind::kCall:
      return evaluate_call(expression, nullptr);
    case Expression::Kind::kFilter:
      return evaluate_filter(expression, nullptr);
    case Expression::Kind::kTest: {
      const TemplateValue subject = evaluate(*arguments[0]);
      TemplateArguments given = arguments_of(expression);
      return apply_test(meter_, expression.name, subject, given);
    }
    case Expression::Kind::kNot:
      return !evaluate(*arguments[0]).truthy();
    case Expression::Kind::kNegate:
    case Expression::Kind::kPlus: {
      const TemplateValue value = evaluate(*arguments[0]);
      if (!value.is_number())
        fail_operands(expression.kind == Expression::Kind::kPlus ? "unary +" : "unary -", value, value);
      if (expression.kind == Expression::Kind::kPlus)
        return value.is_integral() ? TemplateValue(value.integer()) : value;
      if (value.is<double>()) return -value.number();
      return checked(value.integer() == INT64_MIN, value.integer() == INT64_MIN ? 0 : -value.integer());
    }
    case Expression::Kind::kAnd:
    case Expression::Kind::kOr: {
      TemplateValue left = evaluate(*arguments[0]);
      return left.truthy() == (expression.kind == Expression::Kind::kOr) ? left : evaluate(*arguments[1]);
    }
    case Expression::Kind::kArithmetic:
      return evaluate_arithmetic(expression);
    case Expression::Kind::kCompare:
      return evaluate_compare(expression);
    case Expression::Kind::kConcatenate:
      return evaluate_concatenation(expression);
    case Expression::Kind::kConditional:
      if (evaluate(*arguments[1]).truthy()) return evaluate(*arguments[0]);
      if (arguments[2]) return evaluate(*arguments[2]);
      return Undefined{"the inline if-expression evaluated to false and no else section was defined"};
  }
  return {};
}

TemplateValue TemplateRenderer::evaluate_name(const Expression& expression) {
  if (const TemplateValue* value = scope_->find(expression.name)) return *value;
  for (const std::string_view known : {"range", "dict", "namespace", "raise_exception", "strftime_now"}) {
    if (expression.name == known)
      return std::make_shared<const CallableData>(CallableData{expression.name, {}, nullptr});
  }
  return Undefined{text_of("'", expression.name, "' is undefined")};
}

std::vector<TemplateValue> TemplateRenderer::evaluate_all(const Expression& expression, std::size_t from) {
  std::vector<TemplateValue> values;
  for (std::size_t i = from; i < expression.arguments.size(); ++i) values.push_back(evaluate(*expression.arguments[i]));
  return values;
}

TemplateArguments TemplateRenderer::arguments_of(const Expression& expression) {
  TemplateArguments arguments;
  arguments.positional = evaluate_all(expression, 1);
  for (const auto& [name, value] : expression.named) arguments.named.emplace_back(name, evaluate(*value));
  if (expression.spread) {
    for (TemplateValue& value : iterate(evaluate(*expression.spread))) arguments.positional.push_back(std::move(value));
  }
  if (expression.named_spread) {
    const TemplateValue more = evaluate(*expression.named_spread);
    if (!more.is_dict())
      throw TemplateFailure(text_of("** of a value of type ", more.type_name(), ", expected a mapping"));
    for (const auto& [key, value] : more.dict_data().items) {
      if (!key.is_string()) throw TemplateFailure("** of a mapping with keys that are not strings");
      arguments.named.emplace_back(key.text(), value);
    }
  }
  meter_.charge_bytes((arguments.positional.size() + arguments.named.size()) * 32);
  return arguments;
}

TemplateValue TemplateRenderer::evaluate_dict(const Expression& expression) {
  DictData dict;
  for (std::size_t i = 0; i + 1 < expression.arguments.size(); i += 2) {
    const TemplateValue key = evaluate(*expression.arguments[i]);
    const bool is_tuple = key.is_list() && key.as<TemplateValue::List>()->is_tuple;
    if (key.is_dict() || (key.is_list() && !is_tuple))
      throw TemplateFailure(text_of("a ", key.type_name(), " cannot be a key"));
    dict.set(key, evaluate(*expression.arguments[i + 1]));
  }
  return TemplateValue::dict(std::move(dict));
}

TemplateValue TemplateRenderer::evaluate_concatenation(const Expression& expression) {
  std::string text;
  for (const auto& part : expression.arguments) {
    text += printed(meter_, evaluate(*part));
    meter_.charge_bytes(text.size());
  }
  return text;
}

TemplateValue TemplateRenderer::evaluate_arithmetic(const Expression& expression) {
  const TemplateValue a = evaluate(*expression.arguments[0]);
  const TemplateValue b = evaluate(*expression.arguments[1]);
  const std::string& name = expression.name;
  TemplateValue result;
  if (name == "+") {
    result = add_values(a, b);
  } else if (name == "-") {
    if (!a.is_number() || !b.is_number()) fail_operands(name, a, b);
    std::int64_t difference = 0;
    if (!a.is_integral() || !b.is_integral()) return a.number() - b.number();
    const bool overflows = __builtin_sub_overflow(a.integer(), b.integer(), &difference);
    return checked(overflows, difference);
  } else if (name == "%" && a.is_string()) {
    result = format_percent(meter_, a.text(), b);
  } else if (name == "*") {
    result = multiply(a, b);
  } else if (name == "**") {
    result = power(a, b);
  } else {
    result = divide(name, a, b);
  }
  if (result.is_string()) meter_.charge_bytes(result.text().size());
  if (result.is_list()) meter_.charge_bytes(result.items().size() * 32);
  return result;
}

TemplateValue TemplateRenderer::evaluate_compare(const Expression& expression) {
  TemplateValue left = evaluate(*expression.arguments[0]);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    TemplateValue right = evaluate(*expression.arguments[i + 1]);
    if (expression.operators[i] == "in" || expression.operators[i] == "not in") {
      meter_.charge_containment(right, left);
    } else {
      meter_.charge_comparison(left, right);
    }
    if (!compare(expression.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

TemplateValue TemplateRenderer::evaluate_slice(const Expression& expression) {
  const TemplateValue object = evaluate(*expression.arguments[0]);
  if (!object.is_string() && !object.is_list()) {
    if (object.is_undefined()) throw TemplateFailure(object.as<Undefined>().name);
    throw TemplateFailure(text_of("a value of type ", object.type_name(), " cannot be sliced"));
  }
  const std::int64_t count = length(object);
  meter_.charge_bytes(static_cast<std::size_t>(count) * 8);
  const auto bound = [&](std::size_t place, std::int64_t fallback) -> std::int64_t {
    const TemplateValue value =
        expression.arguments[place] ? evaluate(*expression.arguments[place]) : TemplateValue(None{});
    if (value.is<None>()) return fallback;
    if (!value.is_integral())
      throw TemplateFailure(text_of("a slice bound is of type ", value.type_name(), ", expected an integer"));
    return value.integer();
  };
  const std::int64_t step = bound(3, 1);
  if (step == 0) throw TemplateFailure("slice step cannot be zero");
  // Python's slice rules: negative bounds count from the end, and all bounds are clamped.
  const std::int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? count : count - 1;
  const auto clamped = [&](std::int64_t value) {
    return std::clamp(value < 0 ? std::max(value, -count - 1) + count : value, lowest, highest);
  };
  const bool has_begin = expression.arguments[1] != nullptr, has_end = expression.arguments[2] != nullptr;
  const std::int64_t no_begin = step > 0 ? lowest : highest, no_end = step > 0 ? highest : lowest;
  constexpr std::int64_t kAbsent = INT64_MIN;
  const std::int64_t raw_begin = has_begin ? bound(1, kAbsent) : kAbsent;
  const std::int64_t raw_end = has_end ? bound(2, kAbsent) : kAbsent;
  const std::int64_t begin = raw_begin == kAbsent ? no_begin : clamped(raw_begin);
  const std::int64_t end = raw_end == kAbsent ? no_end : clamped(raw_end);
  std::vector<std::size_t> chosen;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    chosen.push_back(static_cast<std::size_t>(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (object.is_string()) {
    const auto offsets = character_offsets(object.text());
    std::string text;
    for (const std::size_t i : chosen) text.append(object.text(), offsets[i], offsets[i + 1] - offsets[i]);
    return text;
  }
  std::vector<TemplateValue> items;
  items.reserve(chosen.size());
  for (const std::size_t i : chosen) items.push_back(object.items()[i]);
  return object.as<TemplateValue::List>()->is_tuple ? TemplateValue::tuple(std::move(items))
                                                    : TemplateValue::list(std::move(items));
}

// `block_text`: the text of a {% filter %} or {% set %} block, to which the innermost filter is applied.
TemplateValue TemplateRenderer::evaluate_filter(const Expression& expression, const TemplateValue* block_text) {
  const Expression* inner = expression.arguments[0].get();
  TemplateValue subject;
  if (inner == nullptr) {
    subject = *block_text;
  } else {
    subject = block_text != nullptr ? evaluate_filter(*inner, block_text) : evaluate(*inner);
  }
  TemplateArguments arguments = arguments_of(expression);
  return apply_filter(meter_, expression.name, subject, arguments);
}

TemplateValue TemplateRenderer::evaluate_call(const Expression& expression, const TemplateValue* caller) {
  const TemplateValue callee = evaluate(*expression.arguments[0]);
  TemplateArguments arguments = arguments_of(expression);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return call(callee, arguments);
}

}  // namespace hone
