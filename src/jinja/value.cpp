#include "jinja/value.h"

#include <algorithm>

#include "core/error.h"
#include "core/json_value.h"
#include "core/unicode.h"

namespace hone {
namespace {

constexpr int kDeepestValue = 200;

TemplateValue converted(const Json& json, int depth) {
  if (depth > kDeepestValue) throw TemplateFailure("the data is nested too deep");
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<std::int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
        throw TemplateFailure(text_of("the integer ", json.get<std::uint64_t>(), " has more than 64 bits"));
      }
      return json.get<std::int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return replace_invalid_utf8(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<TemplateValue> items;
      for (const Json& item : json) items.push_back(converted(item, depth + 1));
      return TemplateValue::list(std::move(items));
    }
    case Json::value_t::object: {
      DictData dict;
      for (const auto& [key, item] : json.items()) {
        dict.items.emplace_back(replace_invalid_utf8(key), converted(item, depth + 1));
      }
      return TemplateValue::dict(std::move(dict));
    }
    default:
      return None{};
  }
}

void add_to_shape(Shape& shape, const TemplateValue& item) {
  const Shape inner = item.shape();
  shape.depth = std::max(shape.depth, inner.depth + 1);
  if (__builtin_add_overflow(shape.size, inner.size, &shape.size)) shape.size = UINT64_MAX;
  shape.holds_reference = shape.holds_reference || inner.holds_reference;
  if (shape.depth > kDeepestValue) throw TemplateFailure("lists or dicts nested too deep");
}

Shape shape_around(const std::vector<TemplateValue>& items) {
  Shape shape;
  for (const TemplateValue& item : items) add_to_shape(shape, item);
  return shape;
}

bool equal_items(const std::vector<TemplateValue>& a, const std::vector<TemplateValue>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](const TemplateValue& x, const TemplateValue& y) { return equal(x, y); });
}

}  // namespace

const TemplateValue* DictData::find(const TemplateValue& key) const {
  for (const auto& [name, value] : items) {
    if (equal(name, key)) return &value;
  }
  return nullptr;
}

const TemplateValue* DictData::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

void DictData::set(const TemplateValue& key, const TemplateValue& value) {
  for (auto& [name, old] : items) {
    if (equal(name, key)) {
      old = value;
      return;
    }
  }
  items.emplace_back(key, value);
}

TemplateValue TemplateValue::list(std::vector<TemplateValue> items) {
  const Shape shape = shape_around(items);
  TemplateValue value;
  value.data_ = std::make_shared<const ListData>(ListData{.items = std::move(items), .shape = shape});
  return value;
}

TemplateValue TemplateValue::tuple(std::vector<TemplateValue> items) {
  const Shape shape = shape_around(items);
  TemplateValue value;
  value.data_ = std::make_shared<const ListData>(ListData{.items = std::move(items), .is_tuple = true, .shape = shape});
  return value;
}

TemplateValue TemplateValue::group(TemplateValue grouper, TemplateValue items) {
  std::vector<TemplateValue> both{std::move(grouper), std::move(items)};
  const Shape shape = shape_around(both);
  TemplateValue value;
  value.data_ = std::make_shared<const ListData>(
      ListData{.items = std::move(both), .is_tuple = true, .shape = shape, .is_group = true});
  return value;
}

TemplateValue TemplateValue::dict(DictData items) {
  Shape shape;
  for (const auto& [key, item] : items.items) {
    add_to_shape(shape, key);
    add_to_shape(shape, item);
  }
  items.shape = shape;
  TemplateValue value;
  value.data_ = std::make_shared<const DictData>(std::move(items));
  return value;
}

Shape TemplateValue::shape() const {
  if (is_list()) return as<List>()->shape;
  if (is_dict()) return dict_data().shape;
  if (is_string()) return {.depth = 0, .size = 32 + text().size()};
  return {.depth = 0, .holds_reference = is<Namespace>() || is<Callable>() || is<Loop>()};
}

TemplateValue TemplateValue::from_json(const Json& json) { return converted(json, 0); }

std::int64_t TemplateValue::integer() const {
  return is<bool>() ? static_cast<std::int64_t>(as<bool>()) : as<std::int64_t>();
}

double TemplateValue::number() const { return is<double>() ? as<double>() : static_cast<double>(integer()); }

bool TemplateValue::truthy() const {
  if (is_undefined() || is<None>()) return false;
  if (is<double>()) return as<double>() != 0.0;
  if (is_integral()) return integer() != 0;
  if (is_string()) return !text().empty();
  if (is_list()) return !items().empty();
  if (is_dict()) return !dict_data().items.empty();
  return true;
}

const char* TemplateValue::type_name() const {
  constexpr const char* kNames[] = {"Undefined",  "NoneType", "bool", "int",       "float",
                                    "str",        "list",     "dict", "Namespace", "function or method",
                                    "LoopContext"};
  return is_list() && as<List>()->is_tuple ? "tuple" : kNames[data_.index()];
}

bool equal(const TemplateValue& a, const TemplateValue& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_list() && b.is_list()) {
    return a.as<TemplateValue::List>()->is_tuple == b.as<TemplateValue::List>()->is_tuple &&
           equal_items(a.items(), b.items());
  }
  if (a.is_dict() && b.is_dict()) {
    const auto& items = a.dict_data().items;
    return items.size() == b.dict_data().items.size() && std::all_of(items.begin(), items.end(), [&](const auto& item) {
             const TemplateValue* other = b.dict_data().find(item.first);
             return other != nullptr && equal(item.second, *other);
           });
  }
  if (a.is<TemplateValue::Namespace>() && b.is<TemplateValue::Namespace>())
    return a.as<TemplateValue::Namespace>() == b.as<TemplateValue::Namespace>();
  if (a.is<TemplateValue::Callable>() && b.is<TemplateValue::Callable>())
    return a.as<TemplateValue::Callable>() == b.as<TemplateValue::Callable>();
  return (a.is_undefined() && b.is_undefined()) || (a.is<None>() && b.is<None>());
}

bool less(const TemplateValue& a, const TemplateValue& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is_string() && b.is_string()) return a.text() < b.text();  // UTF-8 sorts by code point
  if (a.is_list() && b.is_list()) {
    const std::size_t common = std::min(a.items().size(), b.items().size());
    for (std::size_t i = 0; i < common; ++i) {
      if (!equal(a.items()[i], b.items()[i])) return less(a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size();
  }
  throw TemplateFailure(text_of("cannot compare ", a.type_name(), " with ", b.type_name()));
}

bool contains(const TemplateValue& container, const TemplateValue& item) {
  if (container.is_string()) {
    if (!item.is_string()) throw TemplateFailure(text_of("'in <string>' requires a string, not ", item.type_name()));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is_list()) {
    return std::any_of(container.items().begin(), container.items().end(),
                       [&](const TemplateValue& x) { return equal(x, item); });
  }
  if (container.is_dict()) return container.dict_data().find(item) != nullptr;
  if (container.is_undefined()) return false;
  throw TemplateFailure(text_of("a value of type ", container.type_name(), " is not a container"));
}

std::int64_t length(const TemplateValue& value) {
  if (value.is_string()) return static_cast<std::int64_t>(count_code_points(value.text()));
  if (value.is_list()) return static_cast<std::int64_t>(value.items().size());
  if (value.is_dict()) return static_cast<std::int64_t>(value.dict_data().items.size());
  if (value.is_undefined()) return 0;
  throw TemplateFailure(text_of("a value of type ", value.type_name(), " has no length"));
}

std::vector<TemplateValue> iterate(const TemplateValue& value) {
  if (value.is_list()) return value.items();
  std::vector<TemplateValue> items;
  if (value.is_undefined()) return items;
  if (value.is_string()) {
    const std::string& text = value.text();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = decode_utf8(text, at).size;
      items.emplace_back(std::string_view(text).substr(at, size));
      at += size;
    }
    return items;
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict_data().items) items.push_back(key);
    return items;
  }
  throw TemplateFailure(text_of("a value of type ", value.type_name(), " cannot be iterated"));
}

}  // namespace hone
