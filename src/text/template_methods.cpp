// Methods of strings, lists, dicts and loops. Those that change their object are refused, as transformers' sandbox
// does.
#include <algorithm>
#include <optional>
#include <span>

#include "core/error.h"
#include "text/python_format.h"
#include "text/python_text.h"
#include "text/template_functions.h"
#include "text/unicode.h"

namespace hone {
namespace {

using Method = Value (*)(TemplateMeter&, const Value&, TemplateArguments&);
struct NamedMethod {
  std::string_view name;
  Method method;
};

std::optional<std::string> optional_text(TemplateArguments& arguments, std::size_t place, std::string_view name) {
  const Value* value = arguments.find(place, name);
  if (value == nullptr || value->is<None>()) return std::nullopt;
  return arguments.get_text(place, name, {});
}

template <StripSide kSide>
Value strip(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const auto characters = optional_text(arguments, 0, "chars");
  if (characters) meter.charge_search(self.text(), *characters);
  return python_strip(self.text(), characters, kSide);
}

template <bool kFromRight>
Value split(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const auto separator = optional_text(arguments, 0, "sep");
  if (separator && separator->empty()) throw TemplateFailure("split by an empty separator");
  if (separator) meter.charge_search(self.text(), *separator);
  std::vector<Value> parts;
  for (std::string& part : python_split(self.text(), separator, arguments.get_integer(1, "maxsplit", -1), kFromRight)) {
    meter.charge_bytes(64);
    parts.emplace_back(std::move(part));
  }
  return Value::list(std::move(parts));
}

Value split_lines(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  std::vector<Value> parts;
  for (std::string& part : python_split_lines(self.text(), arguments.get_bool(0, "keepends", false))) {
    meter.charge_bytes(64);
    parts.emplace_back(std::move(part));
  }
  return Value::list(std::move(parts));
}

// What the arguments start and end, after the first, leave of the text; nothing where start is behind the text's end.
struct Window {
  std::string_view text;
  std::int64_t begin;  // in characters
  bool exists;
};
Window window_of(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const Value start = arguments.get(1, "start", None{});
  const Value end = arguments.get(2, "end", None{});
  if (start.is<None>() && end.is<None>()) return {self.text(), 0, true};
  const auto offsets = character_offsets(self.text());
  meter.charge_bytes(offsets.size());
  const auto count = static_cast<std::int64_t>(offsets.size()) - 1;
  const auto bound = [&](const Value& value, std::int64_t fallback) {
    if (value.is<None>()) return fallback;
    if (!value.is_integral()) throw TemplateFailure("a bound is not an integer");
    const std::int64_t at = std::clamp(value.integer(), -count - 1, count + 1);
    return at < 0 ? std::max<std::int64_t>(0, at + count) : at;
  };
  const std::int64_t from = bound(start, 0), to = std::min(bound(end, count), count);
  if (from > count || from > to) return {{}, from, false};
  const std::size_t first = offsets[static_cast<std::size_t>(from)];
  return {std::string_view(self.text()).substr(first, offsets[static_cast<std::size_t>(to)] - first), from, true};
}

template <bool kStart>
Value has_affix(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const Value* affix = arguments.find(0, "affix");
  if (affix == nullptr) throw TemplateFailure("startswith and endswith need an argument");
  const Window window = window_of(meter, self, arguments);
  const auto matches = [&](const Value& one) {
    if (!one.is_string())
      throw TemplateFailure(text_of("an affix is of type ", one.type_name(), ", expected a string"));
    return window.exists && (kStart ? window.text.starts_with(one.text()) : window.text.ends_with(one.text()));
  };
  if (!affix->is_list()) return matches(*affix);
  if (!affix->as<Value::List>()->is_tuple) throw TemplateFailure("startswith and endswith want a string or a tuple");
  meter.charge_bytes(affix->shape().size);
  return std::any_of(affix->items().begin(), affix->items().end(), matches);
}

Value replace(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const std::string from = arguments.get_text(0, "old", {});
  const std::string to = arguments.get_text(1, "new", {});
  const std::int64_t limit = arguments.get_integer(2, "count", -1);
  meter.charge_search(self.text(), from);
  meter.charge_bytes(self.text().size(), 1 + to.size() / (from.size() + 1));
  return python_replace(self.text(), from, to, limit);
}

template <bool kFromRight>
Value find(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const std::string wanted = arguments.get_text(0, "sub", {});
  meter.charge_search(self.text(), wanted);
  const Window window = window_of(meter, self, arguments);
  const std::size_t at = kFromRight ? window.text.rfind(wanted) : window.text.find(wanted);
  if (at == std::string::npos || !window.exists) return std::int64_t{-1};
  return window.begin + static_cast<std::int64_t>(count_code_points(window.text.substr(0, at)));
}

template <bool kFromRight>
Value index_of_text(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  Value at = find<kFromRight>(meter, self, arguments);
  if (at.integer() < 0) throw TemplateFailure("substring not found");
  return at;
}

Value count_text(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const std::string wanted = arguments.get_text(0, "sub", {});
  meter.charge_search(self.text(), wanted);
  const Window window = window_of(meter, self, arguments);
  if (!window.exists) return std::int64_t{0};
  if (wanted.empty()) return static_cast<std::int64_t>(count_code_points(window.text)) + 1;
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = window.text.find(wanted, at)) != std::string::npos; at += wanted.size()) ++count;
  return count;
}

enum class Justify { kLeft, kRight, kCenter };

template <Justify kSide>
Value justify(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  constexpr std::int64_t kWidest = 1'000'000;
  const std::int64_t width = arguments.get_integer(0, "width", 0);
  const std::string fill = arguments.get_text(1, "fillchar", " ");
  if (count_code_points(fill) != 1) throw TemplateFailure("the fill character must be exactly one character long");
  if (width > kWidest) throw TemplateFailure(text_of("a width over ", kWidest));
  const std::int64_t missing = std::max<std::int64_t>(0, width - length(self));
  meter.charge_bytes(static_cast<std::uint64_t>(missing), fill.size());
  // Python puts the odd one of a centred text on the left where the width is odd.
  const std::int64_t centered = missing / 2 + (missing & width & 1);
  const std::int64_t left = kSide == Justify::kLeft ? 0 : kSide == Justify::kRight ? missing : centered;
  std::string before, after;
  for (std::int64_t i = 0; i < missing; ++i) (i < left ? before : after) += fill;
  return before + self.text() + after;
}

Value zero_fill(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const std::string& text = self.text();
  const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  TemplateArguments padding;
  padding.positional = {Value(arguments.get_integer(0, "width", 0) - static_cast<std::int64_t>(sign)), Value("0")};
  return text.substr(0, sign) + justify<Justify::kRight>(meter, text.substr(sign), padding).text();
}

template <bool kFromRight>
Value partition(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const std::string separator = arguments.get_text(0, "sep", {});
  if (separator.empty()) throw TemplateFailure("partition by an empty separator");
  meter.charge_search(self.text(), separator);
  const std::string& text = self.text();
  const std::size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) return kFromRight ? Value::tuple({"", "", self}) : Value::tuple({self, "", ""});
  return Value::tuple({text.substr(0, at), separator, text.substr(at + separator.size())});
}

Value swap_case(TemplateMeter&, const Value& self, TemplateArguments&) {
  std::string out;
  for (std::size_t at = 0; at < self.text().size();) {
    const std::size_t size = decode_utf8(self.text(), at).size;
    const std::string character = self.text().substr(at, size), upper = to_upper(character);
    out += upper == character ? to_lower(character) : upper;
    at += size;
  }
  return out;
}

// Letters that have case are all in that case, and there are some.
template <bool kUpper>
Value has_case(TemplateMeter&, const Value& self, TemplateArguments&) {
  const std::string& text = self.text();
  return text == (kUpper ? to_upper(text) : to_lower(text)) && text != (kUpper ? to_lower(text) : to_upper(text));
}

Value join_items(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  std::string out;
  bool is_first = true;
  for (const Value& item : iterate(arguments.get(0, "iterable", {}))) {
    if (!item.is_string())
      throw TemplateFailure(text_of("join of a value of type ", item.type_name(), ", expected strings"));
    if (!is_first) out += self.text();
    is_first = false;
    out += item.text();
    meter.charge_bytes(item.text().size() + self.text().size());
  }
  return out;
}

// True for a text that is not empty and whose characters all satisfy the predicate.
template <class Predicate>
Value all_characters(const Value& self, const Predicate& predicate) {
  const std::string& text = self.text();
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = decode_utf8(text, at);
    if (!predicate(c)) return false;
    at += size;
  }
  return !text.empty();
}

bool is_letter(char32_t c) {
  const Category category = properties_of(c).category();
  return category >= Category::kLl && category <= Category::kLu;
}

Value remove_affix(const Value& self, const std::string& affix, bool at_start) {
  std::string_view text = self.text();
  if (at_start && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!at_start && text.ends_with(affix)) text.remove_suffix(affix.size());
  return text;
}

constexpr NamedMethod kStringMethods[] = {
    {"strip", strip<StripSide::kBoth>},
    {"lstrip", strip<StripSide::kLeft>},
    {"rstrip", strip<StripSide::kRight>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", split_lines},
    {"startswith", has_affix<true>},
    {"endswith", has_affix<false>},
    {"replace", replace},
    {"find", find<false>},
    {"rfind", find<true>},
    {"index", index_of_text<false>},
    {"rindex", index_of_text<true>},
    {"count", count_text},
    {"format",
     [](TemplateMeter& meter, const Value& self, TemplateArguments& a) -> Value {
       return format_braces(meter, self.text(), a);
     }},
    {"ljust", justify<Justify::kLeft>},
    {"rjust", justify<Justify::kRight>},
    {"center", justify<Justify::kCenter>},
    {"zfill", zero_fill},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"swapcase", swap_case},
    {"isupper", has_case<true>},
    {"islower", has_case<false>},
    {"isalnum",
     [](TemplateMeter&, const Value& self, TemplateArguments&) {
       return all_characters(self, [](char32_t c) { return is_letter(c) || properties_of(c).numeric(); });
     }},
    {"isascii",
     [](TemplateMeter&, const Value& self, TemplateArguments&) -> Value {
       return self.text().empty() || all_characters(self, [](char32_t c) { return c < 0x80; }).truthy();
     }},
    {"join", join_items},
    {"upper", [](TemplateMeter&, const Value& self, TemplateArguments&) -> Value { return to_upper(self.text()); }},
    {"lower", [](TemplateMeter&, const Value& self, TemplateArguments&) -> Value { return to_lower(self.text()); }},
    {"title", [](TemplateMeter&, const Value& self, TemplateArguments&) -> Value { return python_title(self.text()); }},
    {"capitalize",
     [](TemplateMeter&, const Value& self, TemplateArguments&) -> Value { return python_capitalize(self.text()); }},
    {"isdigit",
     [](TemplateMeter&, const Value& self, TemplateArguments&) {
       return all_characters(self, [](char32_t c) { return properties_of(c).category() == Category::kNd; });
     }},
    {"isdecimal",
     [](TemplateMeter&, const Value& self, TemplateArguments&) {
       return all_characters(self, [](char32_t c) { return properties_of(c).category() == Category::kNd; });
     }},
    {"isnumeric",
     [](TemplateMeter&, const Value& self, TemplateArguments&) {
       return all_characters(self, [](char32_t c) { return properties_of(c).numeric(); });
     }},
    {"isalpha", [](TemplateMeter&, const Value& self, TemplateArguments&) { return all_characters(self, is_letter); }},
    {"isspace",
     [](TemplateMeter&, const Value& self, TemplateArguments&) { return all_characters(self, is_python_space); }},
    {"removeprefix", [](TemplateMeter&, const Value& self,
                        TemplateArguments& a) { return remove_affix(self, a.get_text(0, "prefix", {}), true); }},
    {"removesuffix", [](TemplateMeter&, const Value& self,
                        TemplateArguments& a) { return remove_affix(self, a.get_text(0, "suffix", {}), false); }},
};

Value index_of(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const Value wanted = arguments.get(0, "value", {});
  meter.charge_containment(self, wanted);
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    if (equal(self.items()[i], wanted)) return static_cast<std::int64_t>(i);
  }
  throw TemplateFailure("index: the item is not in the list");
}

Value count_items(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const Value wanted = arguments.get(0, "value", {});
  meter.charge_containment(self, wanted);
  return static_cast<std::int64_t>(
      std::count_if(self.items().begin(), self.items().end(), [&](const Value& item) { return equal(item, wanted); }));
}

constexpr NamedMethod kListMethods[] = {{"index", index_of}, {"count", count_items}};

Value dict_items(TemplateMeter& meter, const Value& self, TemplateArguments&) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict_data().items) {
    meter.charge_bytes(64);
    items.push_back(Value::tuple({key, value}));
  }
  return Value::list(std::move(items));
}

Value dict_values(TemplateMeter& meter, const Value& self, TemplateArguments&) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict_data().items) {
    meter.step();
    items.push_back(value);
  }
  return Value::list(std::move(items));
}

Value dict_get(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  const Value key = arguments.get(0, "key", {});
  meter.charge_containment(self, key);
  const Value* item = self.dict_data().find(key);
  const Value fallback = arguments.get(1, "default", None{});
  return item == nullptr ? fallback : *item;
}

constexpr NamedMethod kDictMethods[] = {
    {"items", dict_items},
    {"keys", [](TemplateMeter&, const Value& self, TemplateArguments&) { return Value::list(iterate(self)); }},
    {"values", dict_values},
    {"get", dict_get},
    {"copy", [](TemplateMeter&, const Value& self, TemplateArguments&) { return self; }},
};

Value loop_cycle(TemplateMeter&, const Value& self, TemplateArguments& arguments) {
  if (arguments.positional.empty()) throw TemplateFailure("loop.cycle has no items");
  const std::size_t place = self.as<Value::Loop>()->index % arguments.positional.size();
  (void)arguments.find(arguments.positional.size() - 1, "items");
  return arguments.positional[place];
}

Value loop_changed(TemplateMeter& meter, const Value& self, TemplateArguments& arguments) {
  LoopState& loop = *self.as<Value::Loop>();
  for (const Value& value : arguments.positional) {
    if (value.shape().holds_reference) throw TemplateFailure("loop.changed of a function or namespace");
    meter.charge_bytes(value.shape().size);
  }
  if (!arguments.positional.empty()) (void)arguments.find(arguments.positional.size() - 1, "value");
  const bool same = loop.last_changed.size() == arguments.positional.size() && !loop.last_changed.empty() &&
                    std::equal(loop.last_changed.begin(), loop.last_changed.end(), arguments.positional.begin(),
                               [](const Value& a, const Value& b) { return equal(a, b); });
  loop.last_changed = arguments.positional;
  return !same;
}

constexpr NamedMethod kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};

// Known to Python, refused by the sandbox.
constexpr std::string_view kChangingList[] = {"append", "extend",  "insert", "pop",
                                              "remove", "reverse", "sort",   "clear"};
constexpr std::string_view kChangingDict[] = {"update", "pop", "popitem", "setdefault", "clear"};

std::span<const NamedMethod> methods_of(const Value& self) {
  if (self.is_string()) return kStringMethods;
  if (self.is_list()) return kListMethods;
  if (self.is_dict()) return kDictMethods;
  if (self.is<Value::Loop>()) return kLoopMethods;
  return {};
}

bool changes(const Value& self, std::string_view name) {
  const auto listed = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (self.is_list() && listed(kChangingList)) || (self.is_dict() && listed(kChangingDict));
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  const auto methods = methods_of(self);
  return changes(self, name) ||
         std::any_of(methods.begin(), methods.end(), [&](const NamedMethod& method) { return method.name == name; });
}

Value call_method(TemplateMeter& meter, const Value& self, std::string_view name, TemplateArguments& arguments) {
  if (changes(self, name)) {
    throw TemplateFailure(
        text_of("the method '", name, "' would change its ", self.type_name(), ", which templates may not"));
  }
  if (self.is_string()) meter.charge_bytes(self.text().size());
  for (const NamedMethod& method : methods_of(self)) {
    if (method.name != name) continue;
    Value result = method.method(meter, self, arguments);
    arguments.finish(name);
    return result;
  }
  throw TemplateFailure(text_of("'", self.type_name(), "' has no method '", name, "'"));
}

}  // namespace hone
