#include "jinja/functions.h"

#include <algorithm>

#include "core/error.h"
#include "core/unicode.h"
#include "jinja/python_text.h"

namespace hone {
namespace {

TemplateValue no_attribute(const TemplateValue& object, std::string_view name) {
  return Undefined{text_of("'", object.type_name(), " object' has no attribute '", name, "'")};
}

[[noreturn]] void fail_undefined(const TemplateValue& value) { throw TemplateFailure(value.as<Undefined>().name); }

TemplateValue loop_field(const LoopState& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto count = static_cast<std::int64_t>(loop.items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return count - index;
  if (name == "revindex0") return count - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == count;
  if (name == "length") return count;
  if (name == "depth") return std::int64_t{loop.depth0 + 1};
  if (name == "depth0") return std::int64_t{loop.depth0};
  if (name == "previtem")
    return index == 0 ? TemplateValue(Undefined{"there is no previous item"}) : loop.items[loop.index - 1];
  if (name == "nextitem")
    return index + 1 == count ? TemplateValue(Undefined{"there is no next item"}) : loop.items[loop.index + 1];
  return Undefined{text_of("'loop' has no attribute '", name, "'")};
}

}  // namespace

void TemplateBudget::give_up() { throw TemplateFailure("the template takes too many steps"); }

void TemplateBudget::charge_containment(const TemplateValue& container, const TemplateValue& item) {
  if (container.is_string() && item.is_string()) {
    charge_search(container.text(), item.text());
  } else if (container.is_list() || container.is_dict()) {
    charge_bytes(static_cast<std::uint64_t>(length(container)), std::min(container.shape().size, item.shape().size));
  }
}

std::string printed(TemplateBudget& meter, const TemplateValue& value) {
  meter.charge_bytes(value.shape().size);
  return to_text(value);
}

const TemplateValue* TemplateArguments::find(std::size_t place, std::string_view name) {
  used_positional_ = std::max(used_positional_, place + 1);
  used_named_.emplace_back(name);
  if (place < positional.size()) return &positional[place];
  for (const auto& [given, value] : named) {
    if (given == name) return &value;
  }
  return nullptr;
}

TemplateValue TemplateArguments::get(std::size_t place, std::string_view name, TemplateValue fallback) {
  const TemplateValue* value = find(place, name);
  if (value == nullptr) return fallback;
  return *value;
}

TemplateValue TemplateArguments::get_named(std::string_view name, TemplateValue fallback) {
  used_named_.emplace_back(name);
  for (const auto& [given, value] : named) {
    if (given == name) return value;
  }
  return fallback;
}

std::string TemplateArguments::get_text(std::size_t place, std::string_view name, std::string_view fallback) {
  const TemplateValue* value = find(place, name);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string())
    throw TemplateFailure(text_of("the argument ", name, " is of type ", value->type_name(), ", expected a string"));
  return value->text();
}

std::int64_t TemplateArguments::get_integer(std::size_t place, std::string_view name, std::int64_t fallback) {
  const TemplateValue* value = find(place, name);
  if (value == nullptr) return fallback;
  if (!value->is_integral())
    throw TemplateFailure(text_of("the argument ", name, " is of type ", value->type_name(), ", expected an integer"));
  return value->integer();
}

bool TemplateArguments::get_bool(std::size_t place, std::string_view name, bool fallback) {
  const TemplateValue* value = find(place, name);
  return value == nullptr ? fallback : value->truthy();
}

TemplateValue TemplateArguments::take_rest() {
  const auto from = static_cast<std::ptrdiff_t>(std::min(used_positional_, positional.size()));
  used_positional_ = std::max(used_positional_, positional.size());
  return TemplateValue::tuple({positional.begin() + from, positional.end()});
}

TemplateValue TemplateArguments::take_named_rest() {
  DictData rest;
  for (const auto& [name, value] : named) {
    if (std::find(used_named_.begin(), used_named_.end(), name) != used_named_.end()) continue;
    rest.set(TemplateValue(name), value);
    used_named_.push_back(name);
  }
  return TemplateValue::dict(std::move(rest));
}

void TemplateArguments::finish(std::string_view function) const {
  if (positional.size() > used_positional_) {
    throw TemplateFailure(
        text_of(function, " takes at most ", used_positional_, " arguments, got ", positional.size()));
  }
  for (const auto& [name, value] : named) {
    if (std::find(used_named_.begin(), used_named_.end(), name) == used_named_.end()) {
      throw TemplateFailure(text_of(function, " has no argument ", name));
    }
  }
}

TemplateValue get_attribute(const TemplateValue& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is<TemplateValue::Loop>()) {
    if (has_method(object, name))
      return std::make_shared<const CallableData>(CallableData{std::string(name), object, nullptr});
    return loop_field(*object.as<TemplateValue::Loop>(), name);
  }
  if (object.is<TemplateValue::Namespace>()) {
    const TemplateValue* field = object.as<TemplateValue::Namespace>()->fields.find(name);
    return field != nullptr ? *field : no_attribute(object, name);
  }
  if (has_method(object, name))
    return std::make_shared<const CallableData>(CallableData{std::string(name), object, nullptr});
  if (object.is_dict()) {
    if (const TemplateValue* item = object.dict_data().find(name)) return *item;
  }
  if (object.is_list() && object.as<TemplateValue::List>()->is_group && (name == "grouper" || name == "list")) {
    return object.items()[name == "list" ? 1 : 0];
  }
  return no_attribute(object, name);
}

TemplateValue get_item(TemplateBudget& meter, const TemplateValue& object, const TemplateValue& key) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is_string()) meter.charge_bytes(object.text().size());
  if (object.is_dict()) {
    meter.charge_containment(object, key);
    if (const TemplateValue* item = object.dict_data().find(key)) return *item;
  }
  if (key.is_integral() && (object.is_list() || object.is_string())) {
    const std::int64_t count = length(object);
    const std::int64_t index = key.integer() < 0 ? key.integer() + count : key.integer();
    if (index < 0 || index >= count) return Undefined{text_of("there is no item ", key.integer(), " of ", count)};
    if (object.is_list()) return object.items()[static_cast<std::size_t>(index)];
    const auto offsets = character_offsets(object.text());
    const auto at = static_cast<std::size_t>(index);
    return std::string_view(object.text()).substr(offsets[at], offsets[at + 1] - offsets[at]);
  }
  if (key.is_string()) return get_attribute(object, key.text());
  meter.charge_bytes(key.shape().size);
  return Undefined{text_of("'", object.type_name(), " object' has no item ",
                           key.is_undefined() ? "of an undefined key" : to_repr(key))};
}

TemplateValue get_path(TemplateBudget& meter, const TemplateValue& object, const TemplateValue& path) {
  if (!path.is_string()) return get_item(meter, object, path);
  TemplateValue value = object;
  for (const std::string& part : python_split(path.text(), ".", -1, false)) {
    const bool is_index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    value = get_item(meter, value,
                     is_index ? TemplateValue(static_cast<std::int64_t>(std::stol(part))) : TemplateValue(part));
  }
  return value;
}

}  // namespace hone
