#include "jinja/string_methods.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/unicode.h"
#include "jinja/python_format.h"
#include "jinja/python_text.h"

namespace hone {
namespace {

std::optional<std::string> optional_text(TemplateArguments& arguments, std::size_t place, std::string_view name) {
  const TemplateValue* value = arguments.find(place, name);
  if (value == nullptr || value->is<None>()) return std::nullopt;
  return arguments.get_text(place, name, {});
}

template <StripSide kSide>
TemplateValue strip(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const auto characters = optional_text(arguments, 0, "chars");
  if (characters) meter.charge_search(self.text(), *characters);
  return python_strip(self.text(), characters, kSide);
}

template <bool kFromRight>
TemplateValue split(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const auto separator = optional_text(arguments, 0, "sep");
  if (separator && separator->empty()) throw TemplateFailure("split by an empty separator");
  if (separator) meter.charge_search(self.text(), *separator);
  std::vector<TemplateValue> parts;
  for (std::string& part : python_split(self.text(), separator, arguments.get_integer(1, "maxsplit", -1), kFromRight)) {
    meter.charge_bytes(64);
    parts.emplace_back(std::move(part));
  }
  return TemplateValue::list(std::move(parts));
}

TemplateValue split_lines(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  std::vector<TemplateValue> parts;
  for (std::string& part : python_split_lines(self.text(), arguments.get_bool(0, "keepends", false))) {
    meter.charge_bytes(64);
    parts.emplace_back(std::move(part));
  }
  return TemplateValue::list(std::move(parts));
}

// The part of the text that the arguments start and end (after the first argument) select; nothing if start is after
// the end of the text.
struct Window {
  std::string_view text;
  std::int64_t begin;  // in characters
  bool exists;
};
Window window_of(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const TemplateValue start = arguments.get(1, "start", None{});
  const TemplateValue end = arguments.get(2, "end", None{});
  if (start.is<None>() && end.is<None>()) return {self.text(), 0, true};
  const auto offsets = character_offsets(self.text());
  meter.charge_bytes(offsets.size());
  const auto count = static_cast<std::int64_t>(offsets.size()) - 1;
  const auto bound = [&](const TemplateValue& value, std::int64_t fallback) {
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
TemplateValue has_affix(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const TemplateValue* affix = arguments.find(0, "affix");
  if (affix == nullptr) throw TemplateFailure("startswith and endswith need an argument");
  const Window window = window_of(meter, self, arguments);
  const auto matches = [&](const TemplateValue& one) {
    if (!one.is_string())
      throw TemplateFailure(text_of("an affix is of type ", one.type_name(), ", expected a string"));
    return window.exists && (kStart ? window.text.starts_with(one.text()) : window.text.ends_with(one.text()));
  };
  if (!affix->is_list()) return matches(*affix);
  if (!affix->as<TemplateValue::List>()->is_tuple)
    throw TemplateFailure("startswith and endswith need a string or a tuple");
  meter.charge_bytes(affix->shape().size);
  return std::any_of(affix->items().begin(), affix->items().end(), matches);
}

TemplateValue replace(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const std::string from = arguments.get_text(0, "old", {});
  const std::string to = arguments.get_text(1, "new", {});
  const std::int64_t limit = arguments.get_integer(2, "count", -1);
  meter.charge_search(self.text(), from);
  meter.charge_bytes(self.text().size(), 1 + to.size() / (from.size() + 1));
  return python_replace(self.text(), from, to, limit);
}

template <bool kFromRight>
TemplateValue find(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const std::string wanted = arguments.get_text(0, "sub", {});
  meter.charge_search(self.text(), wanted);
  const Window window = window_of(meter, self, arguments);
  const std::size_t at = kFromRight ? window.text.rfind(wanted) : window.text.find(wanted);
  if (at == std::string::npos || !window.exists) return std::int64_t{-1};
  return window.begin + static_cast<std::int64_t>(count_code_points(window.text.substr(0, at)));
}

template <bool kFromRight>
TemplateValue index_of_text(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  TemplateValue at = find<kFromRight>(meter, self, arguments);
  if (at.integer() < 0) throw TemplateFailure("substring not found");
  return at;
}

TemplateValue count_text(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
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
TemplateValue justify(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  constexpr std::int64_t kWidestText = 1'000'000;
  const std::int64_t width = arguments.get_integer(0, "width", 0);
  const std::string fill = arguments.get_text(1, "fillchar", " ");
  if (count_code_points(fill) != 1) throw TemplateFailure("the fill character must be exactly one character long");
  if (width > kWidestText) throw TemplateFailure(text_of("a width over ", kWidestText));
  const std::int64_t missing = std::max<std::int64_t>(0, width - length(self));
  meter.charge_bytes(static_cast<std::uint64_t>(missing), fill.size());
  // For centred text, Python puts the odd space on the left if the width is odd.
  const std::int64_t centered = missing / 2 + (missing & width & 1);
  const std::int64_t left = kSide == Justify::kLeft ? 0 : kSide == Justify::kRight ? missing : centered;
  std::string before, after;
  for (std::int64_t i = 0; i < missing; ++i) (i < left ? before : after) += fill;
  return before + self.text() + after;
}

TemplateValue zero_fill(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const std::string& text = self.text();
  const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  TemplateArguments padding;
  padding.positional = {TemplateValue(arguments.get_integer(0, "width", 0) - static_cast<std::int64_t>(sign)),
                        TemplateValue("0")};
  return text.substr(0, sign) + justify<Justify::kRight>(meter, text.substr(sign), padding).text();
}

template <bool kFromRight>
TemplateValue partition(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  const std::string separator = arguments.get_text(0, "sep", {});
  if (separator.empty()) throw TemplateFailure("partition by an empty separator");
  meter.charge_search(self.text(), separator);
  const std::string& text = self.text();
  const std::size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos)
    return kFromRight ? TemplateValue::tuple({"", "", self}) : TemplateValue::tuple({self, "", ""});
  return TemplateValue::tuple({text.substr(0, at), separator, text.substr(at + separator.size())});
}

TemplateValue swap_case(TemplateBudget&, const TemplateValue& self, TemplateArguments&) {
  std::string out;
  for (std::size_t at = 0; at < self.text().size();) {
    const std::size_t size = decode_utf8(self.text(), at).size;
    const std::string character = self.text().substr(at, size), upper = to_upper(character);
    out += upper == character ? to_lower(character) : upper;
    at += size;
  }
  return out;
}

// Returns true if there are cased letters and all are in the given case.
template <bool kUpper>
TemplateValue has_case(TemplateBudget&, const TemplateValue& self, TemplateArguments&) {
  const std::string& text = self.text();
  return text == (kUpper ? to_upper(text) : to_lower(text)) && text != (kUpper ? to_lower(text) : to_upper(text));
}

TemplateValue join_items(TemplateBudget& meter, const TemplateValue& self, TemplateArguments& arguments) {
  std::string out;
  bool is_first = true;
  for (const TemplateValue& item : iterate(arguments.get(0, "iterable", {}))) {
    if (!item.is_string())
      throw TemplateFailure(text_of("join of a value of type ", item.type_name(), ", expected strings"));
    if (!is_first) out += self.text();
    is_first = false;
    out += item.text();
    meter.charge_bytes(item.text().size() + self.text().size());
  }
  return out;
}

// Returns true if the text is not empty and all its characters satisfy the predicate.
template <class Predicate>
TemplateValue all_characters(const TemplateValue& self, const Predicate& predicate) {
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

TemplateValue remove_affix(const TemplateValue& self, const std::string& affix, bool at_start) {
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
     [](TemplateBudget& meter, const TemplateValue& self, TemplateArguments& a) -> TemplateValue {
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
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) {
       return all_characters(self, [](char32_t c) { return is_letter(c) || properties_of(c).numeric(); });
     }},
    {"isascii",
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) -> TemplateValue {
       return self.text().empty() || all_characters(self, [](char32_t c) { return c < 0x80; }).truthy();
     }},
    {"join", join_items},
    {"upper",
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) -> TemplateValue {
       return to_upper(self.text());
     }},
    {"lower",
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) -> TemplateValue {
       return to_lower(self.text());
     }},
    {"title",
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) -> TemplateValue {
       return python_title(self.text());
     }},
    {"capitalize",
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) -> TemplateValue {
       return python_capitalize(self.text());
     }},
    {"isdigit",
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) {
       return all_characters(self, [](char32_t c) { return properties_of(c).category() == Category::kNd; });
     }},
    {"isdecimal",
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) {
       return all_characters(self, [](char32_t c) { return properties_of(c).category() == Category::kNd; });
     }},
    {"isnumeric",
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) {
       return all_characters(self, [](char32_t c) { return properties_of(c).numeric(); });
     }},
    {"isalpha",
     [](TemplateBudget&, const TemplateValue& self, TemplateArguments&) { return all_characters(self, is_letter); }},
    {"isspace", [](TemplateBudget&, const TemplateValue& self,
                   TemplateArguments&) { return all_characters(self, is_python_space); }},
    {"removeprefix", [](TemplateBudget&, const TemplateValue& self,
                        TemplateArguments& a) { return remove_affix(self, a.get_text(0, "prefix", {}), true); }},
    {"removesuffix", [](TemplateBudget&, const TemplateValue& self,
                        TemplateArguments& a) { return remove_affix(self, a.get_text(0, "suffix", {}), false); }},
};

}  // namespace

std::span<const NamedMethod> string_methods() { return kStringMethods; }

}  // namespace hone
