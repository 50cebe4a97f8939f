// Methods of lists, dicts and loops, and the lookup of all methods by name. Methods that modify their object are
// refused, as in transformers' sandbox.
#include <algorithm>
#include <span>

#include "core/error.h"
#include "jinja/string_methods.h"

namespace hone {
namespace {

TemplateValue index_of(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const TemplateValue wanted = arguments.get(0, "value", {});
  meter.charge_containment(self, wanted);
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    if (equal(self.items()[i], wanted)) return static_cast<std::int64_t>(i);
  }
  throw TemplateFailure("index: the item is not in the list");
}

TemplateValue count_items(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const TemplateValue wanted = arguments.get(0, "value", {});
  meter.charge_containment(self, wanted);
  return static_cast<std::int64_t>(std::count_if(self.items().begin(), self.items().end(),
                                                 [&](const TemplateValue& item) { return equal(item, wanted); }));
}

constexpr NamedMethod kListMethods[] = {{"index", index_of}, {"count", count_items}};

TemplateValue dict_items(TemplateBudget& meter, const TemplateValue& self, TemplateArguments&) {
  std::vector<TemplateValue> items;
  for (const auto& [key, value] : self.dict_data().items) {
    meter.charge_bytes(64);
    items.push_back(TemplateValue::tuple({key, value}));
  }
  return TemplateValue::list(std::move(items));
}

TemplateValue dict_values(TemplateBudget& meter, const TemplateValue& self, TemplateArguments&) {
  std::vector<TemplateValue> items;
  for (const auto& [key, value] : self.dict_data().items) {
    meter.step();
    items.push_back(value);
  }
  return TemplateValue::list(std::move(items));
}

TemplateValue dict_get(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const TemplateValue key = arguments.get(0, "key", {});
  meter.charge_containment(self, key);
  const TemplateValue* item = self.dict_data().find(key);
  const TemplateValue fallback = arguments.get(1, "default", None{});
  return item == nullptr ? fallback : *item;
}

constexpr NamedMethod kDictMethods[] = {
    {"items", dict_items},
    {"keys",
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) { return TemplateValue::list(iterate(self)); }},
    {"values", dict_values},
    {"get", dict_get},
    {"copy", [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) { return self; }},
};

TemplateValue loop_cycle(TemplateBudget&, const TemplateValue& self, TemplateArguments& arguments) {
  if (arguments.positional.empty()) throw TemplateFailure("loop.cycle needs an item");
  const std::size_t place = self.as<TemplateValue::Loop>()->index % arguments.positional.size();
  (void)arguments.find(arguments.positional.size() - 1, "items");
  return arguments.positional[place];
}

TemplateValue loop_changed(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  LoopState& loop = *self.as<TemplateValue::Loop>();
  for (const TemplateValue& value : arguments.positional) {
    if (value.shape().holds_reference) throw TemplateFailure("loop.changed of a function or namespace");
    meter.charge_bytes(value.shape().size);
  }
  if (!arguments.positional.empty()) (void)arguments.find(arguments.positional.size() - 1, "value");
  const bool same = loop.last_changed.size() == arguments.positional.size() && !loop.last_changed.empty() &&
                    std::equal(loop.last_changed.begin(), loop.last_changed.end(), arguments.positional.begin(),
                               [](const TemplateValue& a, const TemplateValue& b) { return equal(a, b); });
  loop.last_changed = arguments.positional;
  return !same;
}

constexpr NamedMethod kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};

// Python's mutating methods, which the sandbox refuses.
constexpr std::string_view kChangingList[] = {"append", "extend",  "insert", "pop",
                                              "remove", "reverse", "sort",   "clear"};
constexpr std::string_view kChangingDict[] = {"update", "pop", "popitem", "setdefault", "clear"};

std::span<const NamedMethod> methods_of(const TemplateValue& self) {
  if (self.is_string()) return string_methods();
  if (self.is_list()) return kListMethods;
  if (self.is_dict()) return kDictMethods;
  if (self.is<TemplateValue::Loop>()) return kLoopMethods;
  return {};
}

bool changes(const TemplateValue& self, std::string_view name) {
  const auto listed = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (self.is_list() && listed(kChangingList)) || (self.is_dict() && listed(kChangingDict));
}

}  // namespace

bool has_method(const TemplateValue& self, std::string_view name) {
  const auto methods = methods_of(self);
  return changes(self, name) ||
         std::any_of(methods.begin(), methods.end(), [&](const NamedMethod& method) { return method.name == name; });
}

TemplateValue call_method(TemplateBudget& meter, const TemplateValue& self, std::string_view name,
                          TemplateArguments& arguments) {
  if (changes(self, name)) {
    throw TemplateFailure(
        text_of("the method '", name, "' modifies its ", self.type_name(), ", which templates must not do"));
  }
  if (self.is_string()) meter.charge_bytes(self.text().size());
  for (const NamedMethod& method : methods_of(self)) {
    if (method.name != name) continue;
    TemplateValue result = method.method(meter, self, arguments);
    arguments.finish(name);
    return result;
  }
  throw TemplateFailure(text_of("'", self.type_name(), "' has no method '", name, "'"));
}

}  // namespace hone
