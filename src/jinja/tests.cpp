// Jinja's tests: {{ x is defined }}.
#include <algorithm>

#include "core/error.h"
#include "core/unicode.h"
#include "jinja/functions.h"

namespace hone {
namespace {

using Test = bool (*)(const TemplateValue&, TemplateArguments&);

std::int64_t integer_of(const TemplateValue& value) {
  if (!value.is_integral()) throw TemplateFailure(text_of("a value of type ", value.type_name(), " is not an integer"));
  return value.integer();
}

TemplateValue other(TemplateArguments& arguments) {
  const TemplateValue* value = arguments.find(0, "other");
  if (value == nullptr) throw TemplateFailure("a test needs an argument");
  return *value;
}

bool is_sequence(const TemplateValue& value) {
  return value.is_string() || value.is_list() || value.is_dict() || value.is_undefined();
}

bool is_divisible(const TemplateValue& value, TemplateArguments& arguments) {
  const std::int64_t divisor = integer_of(other(arguments));
  if (divisor == 0) throw TemplateFailure("division by zero");
  return divisor == -1 || integer_of(value) % divisor == 0;
}

bool has_case(const TemplateValue& value, bool upper) {
  const std::string text = to_text(value);
  const std::string same = upper ? to_upper(text) : to_lower(text);
  const std::string opposite = upper ? to_lower(text) : to_upper(text);
  return text == same && text != opposite;
}

bool is_same(const TemplateValue& value, TemplateArguments& arguments) {
  const TemplateValue against = other(arguments);
  const bool same_kind = value.is<bool>() == against.is<bool>() && value.is<double>() == against.is<double>();
  if (value.is_list() || value.is_dict()) {
    if (value.is_list() && against.is_list())
      return value.as<TemplateValue::List>() == against.as<TemplateValue::List>();
    return value.is_dict() && against.is_dict() && value.as<TemplateValue::Dict>() == against.as<TemplateValue::Dict>();
  }
  return same_kind && equal(value, against);
}

struct NamedTest {
  std::string_view name;
  Test test;
};
constexpr NamedTest kTests[] = {
    {"defined", [](const TemplateValue& v, TemplateArguments&) { return !v.is_undefined(); }},
    {"undefined", [](const TemplateValue& v, TemplateArguments&) { return v.is_undefined(); }},
    {"none", [](const TemplateValue& v, TemplateArguments&) { return v.is<None>(); }},
    {"boolean", [](const TemplateValue& v, TemplateArguments&) { return v.is<bool>(); }},
    {"true", [](const TemplateValue& v, TemplateArguments&) { return v.is<bool>() && v.as<bool>(); }},
    {"false", [](const TemplateValue& v, TemplateArguments&) { return v.is<bool>() && !v.as<bool>(); }},
    {"integer", [](const TemplateValue& v, TemplateArguments&) { return v.is<std::int64_t>(); }},
    {"float", [](const TemplateValue& v, TemplateArguments&) { return v.is<double>(); }},
    {"number", [](const TemplateValue& v, TemplateArguments&) { return v.is_number(); }},
    {"string", [](const TemplateValue& v, TemplateArguments&) { return v.is_string(); }},
    {"mapping", [](const TemplateValue& v, TemplateArguments&) { return v.is_dict(); }},
    {"sequence", [](const TemplateValue& v, TemplateArguments&) { return is_sequence(v); }},
    {"iterable",
     [](const TemplateValue& v, TemplateArguments&) { return is_sequence(v) || v.is<TemplateValue::Loop>(); }},
    {"callable", [](const TemplateValue& v,
                    TemplateArguments&) { return v.is<TemplateValue::Callable>() || v.is<TemplateValue::Loop>(); }},
    {"odd", [](const TemplateValue& v, TemplateArguments&) { return integer_of(v) % 2 != 0; }},
    {"even", [](const TemplateValue& v, TemplateArguments&) { return integer_of(v) % 2 == 0; }},
    {"divisibleby", is_divisible},
    {"lower", [](const TemplateValue& v, TemplateArguments&) { return has_case(v, false); }},
    {"upper", [](const TemplateValue& v, TemplateArguments&) { return has_case(v, true); }},
    {"sameas", is_same},
    {"escaped", [](const TemplateValue&, TemplateArguments&) { return false; }},
    {"eq", [](const TemplateValue& v, TemplateArguments& a) { return equal(v, other(a)); }},
    {"ne", [](const TemplateValue& v, TemplateArguments& a) { return !equal(v, other(a)); }},
    {"lt", [](const TemplateValue& v, TemplateArguments& a) { return less(v, other(a)); }},
    {"gt", [](const TemplateValue& v, TemplateArguments& a) { return less(other(a), v); }},
    {"le",
     [](const TemplateValue& v, TemplateArguments& a) {
       const TemplateValue o = other(a);
       return less(v, o) || equal(v, o);
     }},
    {"ge",
     [](const TemplateValue& v, TemplateArguments& a) {
       const TemplateValue o = other(a);
       return less(o, v) || equal(v, o);
     }},
    {"filter", [](const TemplateValue& v, TemplateArguments&) { return v.is_string() && has_filter(v.text()); }},
    {"test", [](const TemplateValue& v, TemplateArguments&) { return v.is_string() && has_test(v.text()); }},
    {"in", [](const TemplateValue& v, TemplateArguments& a) { return contains(other(a), v); }},
};
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"equalto", "eq"}, {"==", "eq"},          {"!=", "ne"}, {"<", "lt"}, {"lessthan", "lt"},
    {">", "gt"},       {"greaterthan", "gt"}, {"<=", "le"}, {">=", "ge"}};

}  // namespace

bool has_test(std::string_view name) {
  return std::any_of(std::begin(kTests), std::end(kTests), [&](const NamedTest& t) { return t.name == name; }) ||
         std::any_of(std::begin(kAliases), std::end(kAliases), [&](const auto& alias) { return alias.first == name; });
}

bool apply_test(TemplateBudget& meter, std::string_view name, const TemplateValue& subject,
                TemplateArguments& arguments) {
  meter.step();
  for (const auto& [alias, known] : kAliases) {
    if (name == alias) name = known;
  }
  const auto found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const NamedTest& t) { return t.name == name; });
  if (found == std::end(kTests)) throw TemplateFailure(text_of("the test '", name, "' is not known"));
  const auto charge = [&](const TemplateValue& against) {
    if (name == "in") return meter.charge_containment(against, subject);
    meter.charge_comparison(subject, against);
  };
  for (const TemplateValue& against : arguments.positional) charge(against);
  for (const auto& [place, against] : arguments.named) charge(against);
  if (name == "lower" || name == "upper") meter.charge_bytes(subject.shape().size);
  const bool result = found->test(subject, arguments);
  arguments.finish(name);
  return result;
}

}  // namespace hone
