#include "core/option_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace {

template <class>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;
template <class>
constexpr bool kIsVector = false;
template <class T>
constexpr bool kIsVector<std::vector<T>> = true;

Json json_of(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      break;
    case YamlValue::Kind::kScalar:
      return value.scalar;
    case YamlValue::Kind::kList: {
      Json list = Json::array();
      for (const YamlValue& item : value.items) list.push_back(json_of(item));
      return list;
    }
    case YamlValue::Kind::kMap: {
      Json map = Json::object();
      for (std::size_t i = 0; i < value.items.size(); ++i) map[value.keys[i]] = json_of(value.items[i]);
      return map;
    }
  }
  return nullptr;
}

std::string number_text(double value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string bound_text(double value) {
  constexpr double kExact = 1e15;
  const bool whole = value == std::floor(value) && std::abs(value) < kExact;
  return whole ? std::to_string(static_cast<std::int64_t>(value)) : number_text(value);
}

std::string range_text(const Range& range) {
  const bool below = std::isfinite(range.least);
  const bool beyond = std::isfinite(range.most);
  if (below && beyond && !range.least_excluded && !range.most_excluded) {
    return text_of(" from ", bound_text(range.least), " to ", bound_text(range.most));
  }
  std::string text;
  if (below) text += (range.least_excluded ? " above " : " of at least ") + bound_text(range.least);
  if (below && beyond) text += " and";
  if (beyond) text += (range.most_excluded ? " below " : " of at most ") + bound_text(range.most);
  return text;
}

bool in_range(const Range& range, double value) {
  return (range.least_excluded ? value > range.least : value >= range.least) &&
         (range.most_excluded ? value < range.most : value <= range.most);
}

template <class Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_boolean_word(std::string_view text) { return text == "0" || text == "1" || yaml_boolean(text).has_value(); }

// Parse one scalar into a member. Return false, with the member unchanged, if the text is not a valid value.
bool parse_scalar(std::string_view text, const Range&, bool& value) {
  if (!is_boolean_word(text)) return false;
  value = text == "1" || yaml_boolean(text) == true;
  return true;
}
bool parse_scalar(std::string_view text, const Range& range, std::int64_t& value) {
  std::int64_t number = 0;
  if (!parse_number(text, number) || !in_range(range, static_cast<double>(number))) return false;
  value = number;
  return true;
}
bool parse_scalar(std::string_view text, const Range& range, double& value) {
  double number = 0;
  if (!parse_number(text, number) || !std::isfinite(number) || !in_range(range, number)) return false;
  value = number;
  return true;
}
bool parse_scalar(std::string_view text, const Range&, std::string& value) {
  value = text;
  return true;
}

std::string_view kind_of(bool) { return "true or false"; }
std::string_view kind_of(std::int64_t) { return "a whole number"; }
std::string_view kind_of(double) { return "a number"; }
std::string_view kind_of(const std::string&) { return "text"; }
std::string_view list_kind_of(std::int64_t) { return "a list of whole numbers"; }
std::string_view list_kind_of(double) { return "a list of numbers"; }
std::string_view list_kind_of(const std::string&) { return "a list"; }

std::size_t index_of(const std::vector<std::string_view>& names, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
}

std::string names_text(const EnumTable& table) { return text_of("one of ", join(split(table.names, '|'), ", ")); }

// Returns the index of the value with this name, alias or YAML boolean; the number of names if there is none.
std::size_t find_name(const EnumTable& table, std::string_view text) {
  const std::vector<std::string_view> names = alternatives(table.names);
  const auto exact = [&](std::string_view word) {
    for (const std::string_view alias : alternatives(table.aliases)) {
      const std::size_t equals = alias.find('=');
      if (alias.substr(0, equals) == word) return index_of(names, alias.substr(equals + 1));
    }
    return index_of(names, word);
  };
  std::size_t index = exact(text);
  const std::optional<bool> boolean = yaml_boolean(text);
  if (index < names.size() || !boolean) return index;
  constexpr std::array<std::string_view, 3> kFalse{"false", "no", "none"};
  constexpr std::array<std::string_view, 2> kTrue{"true", "yes"};
  for (const std::string_view word : *boolean ? std::span<const std::string_view>(kTrue) : kFalse) {
    if (index == names.size()) index = exact(word);
  }
  return index;
}

[[noreturn]] void fail(const Option& option, std::string_view place, std::string_view seen) {
  throw Error(place, text_of("expected ", expectation_of(option), option.secret ? "" : text_of(", saw ", seen)));
}

void set_enum(const Option& option, const EnumTarget& target, const std::string& text, const std::string& place) {
  const EnumTable& table = *target.table;
  const std::vector<std::string> names = split(table.names, '|');
  const std::size_t index = find_name(table, text);
  if (index < names.size()) return target.set(target.value, index);
  if (std::ranges::count(alternatives(table.not_yet), text) > 0) {
    throw Error(place, text_of(shown(text), " is not implemented yet, expected ", expectation_of(option)));
  }
  const std::string nearest = nearest_name(text, names);
  throw Error(place, text_of("expected ", expectation_of(option), ", saw ", shown(text)),
              nearest.empty() ? "" : text_of("did you mean ", nearest, "?"));
}

template <class T>
void set_list(const Option& option, std::vector<T>& list, const YamlValue& value, const std::string& place) {
  std::vector<YamlValue> items = value.items;
  if (value.kind == YamlValue::Kind::kScalar && !value.scalar.empty()) {
    for (const std::string& part : split(value.scalar, ',')) {
      items.push_back({.kind = YamlValue::Kind::kScalar, .scalar = std::string(trim(part))});
    }
  }
  std::vector<T> read;
  for (const YamlValue& item : items) {
    T element{};
    if (item.kind != YamlValue::Kind::kScalar || !parse_scalar(item.scalar, option.range, element)) {
      fail(option, place, shown(item));
    }
    read.push_back(std::move(element));
  }
  list = std::move(read);
}

}  // namespace

std::vector<std::string_view> alternatives(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('|'), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool takes_no_value(const Option& option) {
  if (const auto* target = std::get_if<EnumTarget>(&option.target)) {
    return std::ranges::count(alternatives(target->table->names), "true") > 0;
  }
  return std::holds_alternative<bool*>(option.target) || std::holds_alternative<std::optional<bool>*>(option.target);
}

bool is_list(const Option& option) {
  return std::holds_alternative<std::vector<std::string>*>(option.target) ||
         std::holds_alternative<std::vector<double>*>(option.target) ||
         std::holds_alternative<std::vector<std::int64_t>*>(option.target);
}

bool is_untyped(const Option& option) { return std::holds_alternative<YamlValue*>(option.target); }

bool may_be_unset(const Option& option) {
  return std::visit(
      [](const auto& target) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(target)>, EnumTarget>) {
          return false;
        } else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*target)>, YamlValue>) {
          return true;
        } else {
          return kIsOptional<std::remove_cvref_t<decltype(*target)>>;
        }
      },
      option.target);
}

bool is_switch_value(const Option& option, std::string_view word) {
  const auto* target = std::get_if<EnumTarget>(&option.target);
  return target == nullptr ? is_boolean_word(word)
                           : find_name(*target->table, word) < alternatives(target->table->names).size();
}

std::string expectation_of(const Option& option) {
  return std::visit(
      [&](const auto& target) -> std::string {
        using Target = std::remove_cvref_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, EnumTarget>) {
          return names_text(*target.table);
        } else {
          using Member = std::remove_cvref_t<decltype(*target)>;
          if constexpr (std::is_same_v<Member, YamlValue>) {
            return "a map";
          } else if constexpr (kIsVector<Member>) {
            const std::string range = range_text(option.range);
            return text_of(list_kind_of(typename Member::value_type{}), range.empty() ? "" : ", each", range);
          } else if constexpr (kIsOptional<Member>) {
            return text_of(kind_of(typename Member::value_type{}), range_text(option.range));
          } else {
            return text_of(kind_of(Member{}), range_text(option.range));
          }
        }
      },
      option.target);
}

void set_option(const Option& option, const YamlValue& value, const std::string& place) {
  const bool null = value.kind == YamlValue::Kind::kNull;
  std::visit(
      [&](const auto& target) {
        using Target = std::remove_cvref_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, EnumTarget>) {
          if (null) return;
          if (value.kind != YamlValue::Kind::kScalar) fail(option, place, shown(value));
          set_enum(option, target, value.scalar, place);
        } else {
          using Member = std::remove_cvref_t<decltype(*target)>;
          if constexpr (std::is_same_v<Member, YamlValue>) {
            if (value.kind == YamlValue::Kind::kScalar) fail(option, place, shown(value));
            *target = value;
          } else if constexpr (kIsVector<Member>) {
            if (value.kind == YamlValue::Kind::kMap) fail(option, place, shown(value));
            set_list(option, *target, value, place);
          } else if constexpr (kIsOptional<Member>) {
            target->reset();
            if (null) return;
            typename Member::value_type read{};
            if (value.kind != YamlValue::Kind::kScalar || !parse_scalar(value.scalar, option.range, read)) {
              fail(option, place, shown(value));
            }
            *target = std::move(read);
          } else {
            if (null) return;
            if (value.kind != YamlValue::Kind::kScalar || !parse_scalar(value.scalar, option.range, *target)) {
              fail(option, place, shown(value));
            }
          }
        }
      },
      option.target);
}

Json value_json(const Option& option) {
  if (option.secret) return nullptr;
  return std::visit(
      [](const auto& target) -> Json {
        using Target = std::remove_cvref_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, EnumTarget>) {
          return alternatives(target.table->names)[target.get(target.value)];
        } else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*target)>, YamlValue>) {
          return json_of(*target);
        } else if constexpr (kIsOptional<std::remove_cvref_t<decltype(*target)>>) {
          return *target ? Json(**target) : Json(nullptr);
        } else {
          return *target;
        }
      },
      option.target);
}

std::string value_text(const Option& option) {
  const auto text = [](const Json& value) {
    if (value.is_string()) return yaml_quoted(value.get<std::string>());
    if (value.is_number_float()) return number_text(value.get<double>());
    return value.is_null() ? std::string() : value.dump();
  };
  const Json value = value_json(option);
  if (!value.is_array()) return text(value);
  std::vector<std::string> items;
  for (const Json& item : value) items.push_back(text(item));
  return text_of("[", join(items, ", "), "]");
}

std::string shortened(std::string_view key) {
  const std::string quoted = shown(key);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace hone
