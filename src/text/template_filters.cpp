// Jinja's filters: {{ x | trim }}. tojson is transformers' (no HTML escapes).
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "text/python_format.h"
#include "text/python_text.h"
#include "text/template_functions.h"
#include "text/unicode.h"

namespace hone {
namespace {

using Filter = TemplateValue (*)(TemplateMeter&, const TemplateValue&, TemplateArguments&);

std::vector<TemplateValue> items_of(TemplateMeter& meter, const TemplateValue& subject) {
  std::vector<TemplateValue> items = iterate(subject);
  meter.charge_bytes(items.size() * 32);
  return items;
}

TemplateValue default_filter(TemplateMeter&, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue fallback = arguments.get(0, "default_value", "");
  const bool also_false = arguments.get_bool(1, "boolean", false);
  return subject.is_undefined() || (also_false && !subject.truthy()) ? fallback : subject;
}

TemplateValue trim_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue* characters = arguments.find(0, "chars");
  std::optional<std::string> set;
  if (characters != nullptr && !characters->is<None>()) set = arguments.get_text(0, "chars", {});
  const std::string text = printed(meter, subject);
  if (set) meter.charge_search(text, *set);
  return python_strip(text, set, StripSide::kBoth);
}

TemplateValue tojson_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  JsonStyle style;
  style.ensure_ascii = arguments.get_bool(0, "ensure_ascii", false);
  const TemplateValue indent = arguments.get(1, "indent", None{});
  if (!indent.is<None>()) {
    const std::int64_t width = indent.is_string() ? 0 : arguments.get_integer(1, "indent", 0);
    style.indent = indent.is_string()
                       ? indent.text()
                       : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(width, 0, 100)), ' ');
    style.item_separator = ",";
  }
  const TemplateValue separators = arguments.get(2, "separators", None{});
  if (!separators.is<None>()) {
    if (!separators.is_list() || separators.items().size() != 2)
      throw TemplateFailure("tojson separators is not a pair");
    style.item_separator = printed(meter, separators.items()[0]);
    style.key_separator = printed(meter, separators.items()[1]);
  }
  style.sort_keys = arguments.get_bool(3, "sort_keys", false);
  const Shape shape = subject.shape();
  const std::uint64_t margin = style.indent.value_or("").size() * static_cast<std::uint64_t>(shape.depth);
  const std::uint64_t separators_size = style.item_separator.size() + style.key_separator.size();
  meter.charge_bytes(shape.size, 1 + (margin + separators_size) / 32);
  std::string text = to_json_text(subject, style);
  meter.charge_bytes(text.size());
  return text;
}

TemplateValue join_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const std::string separator = printed(meter, arguments.get(0, "d", ""));
  const TemplateValue attribute = arguments.get(1, "attribute", None{});
  std::string out;
  bool is_first = true;
  for (const TemplateValue& item : items_of(meter, subject)) {
    const std::string text = printed(meter, attribute.is<None>() ? item : get_path(meter, item, attribute));
    if (!is_first) out += separator;
    is_first = false;
    out += text;
    meter.charge_bytes(text.size() + separator.size());
  }
  return out;
}

TemplateValue replace_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const std::string text = printed(meter, subject), from = printed(meter, arguments.get(0, "old", "")),
                    to = printed(meter, arguments.get(1, "new", ""));
  const TemplateValue count = arguments.get(2, "count", None{});
  meter.charge_search(text, from);
  meter.charge_bytes(text.size(), 1 + to.size() / (from.size() + 1));
  return python_replace(text, from, to, count.is<None>() ? -1 : arguments.get_integer(2, "count", -1));
}

template <bool kLast>
TemplateValue end_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments&) {
  const std::vector<TemplateValue> items = items_of(meter, subject);
  if (items.empty())
    return Undefined{kLast ? "No last item, sequence was empty." : "No first item, sequence was empty."};
  return kLast ? items.back() : items.front();
}

TemplateValue int_filter(TemplateMeter&, const TemplateValue& subject, TemplateArguments& arguments) {
  TemplateValue fallback = arguments.get(0, "default", std::int64_t{0});
  const std::int64_t base = arguments.get_integer(1, "base", 10);
  double number = 0;
  if (subject.is_integral()) return subject.integer();
  if (subject.is<double>()) {
    number = subject.number();
  } else if (subject.is_string()) {
    std::string text(strip_python_space(subject.text()));
    if (text.starts_with('+')) text.erase(0, 1);
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto whole = std::from_chars(text.data(), end, value, base >= 2 && base <= 36 ? static_cast<int>(base) : 10);
    if (whole.ec == std::errc{} && whole.ptr == end) return value;
    const auto real = std::from_chars(text.data(), end, number);
    if (real.ec != std::errc{} || real.ptr != end) return fallback;
  } else {
    return fallback;
  }
  if (!(std::fabs(number) < 9.0e18)) return fallback;
  return static_cast<std::int64_t>(number);
}

TemplateValue float_filter(TemplateMeter&, const TemplateValue& subject, TemplateArguments& arguments) {
  TemplateValue fallback = arguments.get(0, "default", 0.0);
  if (subject.is_number()) return subject.number();
  if (!subject.is_string()) return fallback;
  const std::string_view text = strip_python_space(subject.text());
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc{} && read.ptr == text.data() + text.size() && !text.empty() ? TemplateValue(number)
                                                                                          : fallback;
}

TemplateValue abs_filter(TemplateMeter&, const TemplateValue& subject, TemplateArguments&) {
  if (subject.is<double>()) return std::fabs(subject.number());
  if (!subject.is_integral() || subject.integer() == INT64_MIN)
    throw TemplateFailure(text_of("abs of a value of type ", subject.type_name()));
  return std::abs(subject.integer());
}

TemplateValue round_filter(TemplateMeter&, const TemplateValue& subject, TemplateArguments& arguments) {
  if (!subject.is_number()) throw TemplateFailure(text_of("round of a value of type ", subject.type_name()));
  const std::int64_t precision = arguments.get_integer(0, "precision", 0);
  const std::string method = arguments.get_text(1, "method", "common");
  if (precision < 0 || precision > 15)
    throw TemplateFailure(text_of("round to ", precision, " digits is not supported"));
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double number = subject.number() * scale;
  if (method == "ceil") return std::ceil(number) / scale;
  if (method == "floor") return std::floor(number) / scale;
  if (method != "common") throw TemplateFailure("round: method is common, ceil or floor");
  return std::nearbyint(number) / scale;
}

TemplateValue items_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments&) {
  if (subject.is_undefined()) return TemplateValue::list({});
  if (!subject.is_dict())
    throw TemplateFailure(text_of("items of a value of type ", subject.type_name(), ", expected a mapping"));
  TemplateArguments none;
  return call_method(meter, subject, "items", none);
}

// Sorting compares text without case unless told otherwise.
TemplateValue sort_key(const TemplateValue& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? TemplateValue(to_lower(value.text())) : value;
}

std::vector<TemplateValue> sorted(TemplateMeter& meter, std::vector<TemplateValue> items,
                                  const TemplateValue& attribute, bool case_sensitive, bool reverse) {
  std::vector<std::pair<TemplateValue, TemplateValue>> keyed;
  for (TemplateValue& item : items) {
    TemplateValue key = attribute.is<None>() ? item : get_path(meter, item, attribute);
    meter.charge_bytes(key.shape().size, static_cast<std::uint64_t>(std::bit_width(items.size())));
    keyed.emplace_back(sort_key(key, case_sensitive), std::move(item));
  }
  for (const auto& [key, item] : keyed)
    (void)less(key, keyed.front().first);  // all must compare before the sort starts
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  items.clear();
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return items;
}

TemplateValue sort_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const bool reverse = arguments.get_bool(0, "reverse", false);
  const bool case_sensitive = arguments.get_bool(1, "case_sensitive", false);
  return TemplateValue::list(
      sorted(meter, items_of(meter, subject), arguments.get(2, "attribute", None{}), case_sensitive, reverse));
}

TemplateValue dictsort_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const bool case_sensitive = arguments.get_bool(0, "case_sensitive", false);
  const std::string by = arguments.get_text(1, "by", "key");
  const bool reverse = arguments.get_bool(2, "reverse", false);
  return TemplateValue::list(sorted(meter, iterate(items_filter(meter, subject, arguments)),
                                    TemplateValue(std::int64_t{by == "value" ? 1 : 0}), case_sensitive, reverse));
}

TemplateValue unique_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const bool case_sensitive = arguments.get_bool(0, "case_sensitive", false);
  const TemplateValue attribute = arguments.get(1, "attribute", None{});
  std::vector<TemplateValue> seen, kept;
  for (const TemplateValue& item : items_of(meter, subject)) {
    const TemplateValue key = sort_key(attribute.is<None>() ? item : get_path(meter, item, attribute), case_sensitive);
    meter.charge_bytes(key.shape().size, seen.size());
    if (std::any_of(seen.begin(), seen.end(), [&](const TemplateValue& old) { return equal(old, key); })) continue;
    seen.push_back(key);
    kept.push_back(item);
  }
  return TemplateValue::list(std::move(kept));
}

template <bool kLargest>
TemplateValue extreme_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const bool case_sensitive = arguments.get_bool(0, "case_sensitive", false);
  const std::vector<TemplateValue> items =
      sorted(meter, items_of(meter, subject), arguments.get(1, "attribute", None{}), case_sensitive, kLargest);
  return items.empty() ? TemplateValue(Undefined{"No aggregated item, sequence was empty."}) : items.front();
}

// Groups in the order of their keys; text is grouped without case unless told otherwise, under the first one's key.
TemplateValue groupby_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue attribute = arguments.get(0, "attribute", {});
  if (attribute.is_undefined()) throw TemplateFailure("groupby needs an attribute");
  const TemplateValue fallback = arguments.get(1, "default", None{});
  const bool case_sensitive = arguments.get_bool(2, "case_sensitive", false);
  const auto key_of = [&](const TemplateValue& item) {
    TemplateValue key = get_path(meter, item, attribute);
    return key.is_undefined() && !fallback.is<None>() ? fallback : key;
  };
  std::vector<std::pair<TemplateValue, TemplateValue>> keyed;
  for (const TemplateValue& item : items_of(meter, subject)) keyed.emplace_back(key_of(item), item);
  const auto place = [&](const TemplateValue& key) { return sort_key(key, case_sensitive); };
  for (const auto& [key, item] : keyed) {
    meter.charge_bytes(key.shape().size, static_cast<std::uint64_t>(std::bit_width(keyed.size())));
    if (keyed.size() > 1)
      (void)less(place(key), place(keyed.front().first));  // all must compare before the sort starts
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const auto& a, const auto& b) { return less(place(a.first), place(b.first)); });
  std::vector<TemplateValue> groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::vector<TemplateValue> items;
    std::size_t end = begin;
    for (; end < keyed.size() && equal(place(keyed[end].first), place(keyed[begin].first)); ++end) {
      items.push_back(keyed[end].second);
    }
    groups.push_back(TemplateValue::group(keyed[begin].first, TemplateValue::list(std::move(items))));
    begin = end;
  }
  return TemplateValue::list(std::move(groups));
}

TemplateValue reverse_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments&) {
  std::vector<TemplateValue> items = items_of(meter, subject);
  std::reverse(items.begin(), items.end());
  if (!subject.is_string()) return TemplateValue::list(std::move(items));
  std::string text;
  for (const TemplateValue& item : items) text += item.text();
  return text;
}

TemplateValue sum_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue attribute = arguments.get(0, "attribute", None{});
  TemplateValue sum = arguments.get(1, "start", std::int64_t{0});
  if (sum.is_string()) throw TemplateFailure("sum of strings");
  for (const TemplateValue& item : items_of(meter, subject)) {
    sum = add_values(sum, attribute.is<None>() ? item : get_path(meter, item, attribute));
    meter.charge_bytes(sum.is_list() ? sum.items().size() * 32 : 0);
  }
  return sum;
}

TemplateValue indent_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue width = arguments.get(0, "width", std::int64_t{4});
  const bool first = arguments.get_bool(1, "first", false);
  const bool blank = arguments.get_bool(2, "blank", false);
  if (!width.is_string() && (!width.is_integral() || width.integer() > 1000))
    throw TemplateFailure("indent: the width is not a small number");
  const std::string indentation =
      width.is_string() ? width.text()
                        : std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, width.integer())), ' ');
  std::string out;
  bool is_first = true;
  for (const std::string& line : python_split_lines(printed(meter, subject) + "\n", false)) {
    if (!is_first) out += "\n";
    if (is_first ? first : blank || !line.empty()) out += indentation;
    is_first = false;
    out += line;
    meter.charge_bytes(line.size() + indentation.size());
  }
  return out;
}

TemplateArguments rest_of(const TemplateArguments& arguments, std::size_t from) {
  TemplateArguments rest;
  rest.positional.assign(
      arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(from, arguments.positional.size())),
      arguments.positional.end());
  return rest;
}

// Says that all positional arguments are used: they were handed on.
void use_all(TemplateArguments& arguments) {
  if (!arguments.positional.empty()) (void)arguments.find(arguments.positional.size() - 1, {});
}

TemplateValue map_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue attribute = arguments.get_named("attribute", None{});
  const TemplateValue fallback = arguments.get_named("default", Undefined{"there is no such attribute"});
  use_all(arguments);
  std::vector<TemplateValue> results;
  if (!subject.truthy()) return TemplateValue::list({});  // Jinja looks no further, also at None
  for (const TemplateValue& item : items_of(meter, subject)) {
    if (!attribute.is<None>()) {
      TemplateValue value = get_path(meter, item, attribute);
      if (value.is_undefined()) value = fallback;
      results.push_back(std::move(value));
    } else {
      if (arguments.positional.empty()) throw TemplateFailure("map needs a filter or an attribute");
      TemplateArguments rest = rest_of(arguments, 1);
      results.push_back(apply_filter(meter, printed(meter, arguments.positional[0]), item, rest));
    }
  }
  return TemplateValue::list(std::move(results));
}

template <bool kWanted, bool kAttribute>
TemplateValue select_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  use_all(arguments);
  if (!subject.truthy()) return TemplateValue::list({});
  constexpr std::size_t kTest = kAttribute ? 1 : 0;
  if (kAttribute && arguments.positional.empty()) throw TemplateFailure("selectattr and rejectattr need an attribute");
  std::vector<TemplateValue> kept;
  for (const TemplateValue& item : items_of(meter, subject)) {
    const TemplateValue value = kAttribute ? get_path(meter, item, arguments.positional[0]) : item;
    bool passes = false;
    if (arguments.positional.size() > kTest) {
      TemplateArguments rest = rest_of(arguments, kTest + 1);
      passes = apply_test(meter, printed(meter, arguments.positional[kTest]), value, rest);
    } else {
      passes = value.truthy();
    }
    if (passes == kWanted) kept.push_back(item);
  }
  return TemplateValue::list(std::move(kept));
}

// Jinja's own rule: words begin after white space and opening brackets (str.title() also begins one after an
// apostrophe).
std::string title_text(const std::string& text) {
  std::string out;
  bool begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = decode_utf8(text, at);
    const std::string_view character = std::string_view(text).substr(at, size);
    const bool separates = is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    out += begins ? to_upper(character) : to_lower(character);
    begins = separates;
    at += size;
  }
  return out;
}

TemplateValue batch_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const std::int64_t size = arguments.get_integer(0, "linecount", 0);
  const TemplateValue fill = arguments.get(1, "fill_with", None{});
  if (size < 1 || size > 100'000) throw TemplateFailure("batch: the size is not between 1 and 100000");
  std::vector<TemplateValue> batches, batch;
  for (const TemplateValue& item : items_of(meter, subject)) {
    batch.push_back(item);
    if (static_cast<std::int64_t>(batch.size()) == size)
      batches.push_back(TemplateValue::list(std::exchange(batch, {})));
  }
  if (!batch.empty()) {
    if (!fill.is<None>()) batch.resize(static_cast<std::size_t>(size), fill);
    batches.push_back(TemplateValue::list(std::move(batch)));
  }
  return TemplateValue::list(std::move(batches));
}

TemplateValue slice_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const std::int64_t slices = arguments.get_integer(0, "slices", 0);
  const TemplateValue fill = arguments.get(1, "fill_with", None{});
  if (slices < 1 || slices > 100'000) throw TemplateFailure("slice: the count is not between 1 and 100000");
  const std::vector<TemplateValue> items = items_of(meter, subject);
  const auto count = static_cast<std::size_t>(slices);
  meter.charge_bytes(count * 32);
  std::vector<TemplateValue> result;
  std::size_t begin = 0;
  for (std::size_t n = 0; n < count; ++n) {
    const bool larger = n < items.size() % count;
    const std::size_t end = begin + items.size() / count + (larger ? 1 : 0);
    std::vector<TemplateValue> slice(items.begin() + static_cast<std::ptrdiff_t>(begin),
                                     items.begin() + static_cast<std::ptrdiff_t>(end));
    if (!larger && !fill.is<None>()) slice.push_back(fill);
    result.push_back(TemplateValue::list(std::move(slice)));
    begin = end;
  }
  return TemplateValue::list(std::move(result));
}

TemplateValue truncate_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const std::int64_t length = arguments.get_integer(0, "length", 255);
  const bool kills_words = arguments.get_bool(1, "killwords", false);
  const std::string end = arguments.get_text(2, "end", "...");
  const TemplateValue leeway = arguments.get(3, "leeway", None{});
  const std::int64_t most = length + (leeway.is<None>() ? 5 : arguments.get_integer(3, "leeway", 5));
  std::string text = printed(meter, subject);
  const auto offsets = character_offsets(text);
  if (static_cast<std::int64_t>(offsets.size()) - 1 <= most) return text;
  const std::int64_t kept = length - static_cast<std::int64_t>(count_code_points(end));
  if (kept < 0) throw TemplateFailure("truncate: the length is less than that of the end");
  std::string cut = text.substr(0, offsets[static_cast<std::size_t>(kept)]);
  if (!kills_words) cut = python_split(cut, " ", 1, true).front();
  return cut + end;
}

TemplateValue format_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const std::string text = printed(meter, subject);
  const TemplateValue positional = arguments.take_rest();
  const TemplateValue named = arguments.take_named_rest();
  if (!positional.items().empty() && !named.dict_data().items.empty()) {
    throw TemplateFailure("format takes positional or named arguments, not both");
  }
  return format_percent(meter, text, named.dict_data().items.empty() ? positional : named);
}

TemplateValue center_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  TemplateArguments width;
  width.positional.emplace_back(arguments.get_integer(0, "width", 80));
  return call_method(meter, printed(meter, subject), "center", width);
}

TemplateValue escape_filter(TemplateMeter& meter, const TemplateValue& subject, TemplateArguments&) {
  std::string out;
  for (const char c : printed(meter, subject)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  meter.charge_bytes(out.size());
  return out;
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};
constexpr NamedFilter kFilters[] = {
    {"abs", abs_filter},
    {"attr",
     [](TemplateMeter&, const TemplateValue& v, TemplateArguments& a) {
       return v.is_dict() && !has_method(v, a.get_text(0, "name", ""))
                  ? TemplateValue(Undefined{"a dict has no such attribute"})
                  : get_attribute(v, a.get_text(0, "name", ""));
     }},
    {"batch", batch_filter},
    {"capitalize",
     [](TemplateMeter& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return python_capitalize(printed(meter, v));
     }},
    {"center", center_filter},
    {"count", [](TemplateMeter&, const TemplateValue& v, TemplateArguments&) -> TemplateValue { return length(v); }},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"first", end_filter<false>},
    {"float", float_filter},
    {"forceescape", escape_filter},
    {"format", format_filter},
    {"groupby", groupby_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", end_filter<true>},
    {"length", [](TemplateMeter&, const TemplateValue& v, TemplateArguments&) -> TemplateValue { return length(v); }},
    {"list", [](TemplateMeter& meter, const TemplateValue& v,
                TemplateArguments&) { return TemplateValue::list(items_of(meter, v)); }},
    {"lower",
     [](TemplateMeter& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return to_lower(printed(meter, v));
     }},
    {"map", map_filter},
    {"max", extreme_filter<true>},
    {"min", extreme_filter<false>},
    {"reject", select_filter<false, false>},
    {"rejectattr", select_filter<false, true>},
    {"replace", replace_filter},
    {"reverse", reverse_filter},
    {"round", round_filter},
    {"safe",
     [](TemplateMeter& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return printed(meter, v);
     }},
    {"select", select_filter<true, false>},
    {"selectattr", select_filter<true, true>},
    {"slice", slice_filter},
    {"sort", sort_filter},
    {"string",
     [](TemplateMeter& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return printed(meter, v);
     }},
    {"sum", sum_filter},
    {"title",
     [](TemplateMeter& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return title_text(printed(meter, v));
     }},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"unique", unique_filter},
    {"upper",
     [](TemplateMeter& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return to_upper(printed(meter, v));
     }},
    {"wordcount",
     [](TemplateMeter& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return static_cast<std::int64_t>(python_split(printed(meter, v), std::nullopt, -1, false).size());
     }},
};

}  // namespace

bool has_filter(std::string_view name) {
  return std::any_of(std::begin(kFilters), std::end(kFilters), [&](const NamedFilter& f) { return f.name == name; });
}

TemplateValue apply_filter(TemplateMeter& meter, std::string_view name, const TemplateValue& subject,
                           TemplateArguments& arguments) {
  meter.charge_bytes(subject.is_string() ? subject.text().size() : 0);
  const auto found =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const NamedFilter& f) { return f.name == name; });
  if (found == std::end(kFilters)) throw TemplateFailure(text_of("the filter '", name, "' is not known"));
  TemplateValue result = found->filter(meter, subject, arguments);
  arguments.finish(name);
  return result;
}

}  // namespace hone
