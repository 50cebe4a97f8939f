// Jinja's filters for sequences and mappings: {{ x | sort }}.
#include <algorithm>

#include "core/error.h"
#include "core/unicode.h"
#include "jinja/filters.h"

namespace hone {
namespace {

std::vector<TemplateValue> items_of(TemplateBudget& meter, const TemplateValue& subject) {
  std::vector<TemplateValue> items = iterate(subject);
  meter.charge_bytes(items.size() * 32);
  return items;
}

TemplateValue join_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
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

template <bool kLast>
TemplateValue end_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments&) {
  const std::vector<TemplateValue> items = items_of(meter, subject);
  if (items.empty())
    return Undefined{kLast ? "No last item, sequence was empty." : "No first item, sequence was empty."};
  return kLast ? items.back() : items.front();
}

TemplateValue items_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments&) {
  if (subject.is_undefined()) return TemplateValue::list({});
  if (!subject.is_dict())
    throw TemplateFailure(text_of("items of a value of type ", subject.type_name(), ", expected a mapping"));
  TemplateArguments none;
  return call_method(meter, subject, "items", none);
}

// Text is compared without case by default.
TemplateValue sort_key(const TemplateValue& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? TemplateValue(to_lower(value.text())) : value;
}

std::vector<TemplateValue> sorted(TemplateBudget& meter, std::vector<TemplateValue> items,
                                  const TemplateValue& attribute, bool case_sensitive, bool reverse) {
  std::vector<std::pair<TemplateValue, TemplateValue>> keyed;
  for (TemplateValue& item : items) {
    TemplateValue key = attribute.is<None>() ? item : get_path(meter, item, attribute);
    meter.charge_bytes(key.shape().size, static_cast<std::uint64_t>(std::bit_width(items.size())));
    keyed.emplace_back(sort_key(key, case_sensitive), std::move(item));
  }
  for (const auto& [key, item] : keyed)
    (void)less(key, keyed.front().first);  // check that all keys are comparable before sorting
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  items.clear();
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return items;
}

TemplateValue sort_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const bool reverse = arguments.get_bool(0, "reverse", false);
  const bool case_sensitive = arguments.get_bool(1, "case_sensitive", false);
  return TemplateValue::list(
      sorted(meter, items_of(meter, subject), arguments.get(2, "attribute", None{}), case_sensitive, reverse));
}

TemplateValue dictsort_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const bool case_sensitive = arguments.get_bool(0, "case_sensitive", false);
  const std::string by = arguments.get_text(1, "by", "key");
  const bool reverse = arguments.get_bool(2, "reverse", false);
  return TemplateValue::list(sorted(meter, iterate(items_filter(meter, subject, arguments)),
                                    TemplateValue(std::int64_t{by == "value" ? 1 : 0}), case_sensitive, reverse));
}

TemplateValue unique_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
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
TemplateValue extreme_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const bool case_sensitive = arguments.get_bool(0, "case_sensitive", false);
  const std::vector<TemplateValue> items =
      sorted(meter, items_of(meter, subject), arguments.get(1, "attribute", None{}), case_sensitive, kLargest);
  return items.empty() ? TemplateValue(Undefined{"No aggregated item, sequence was empty."}) : items.front();
}

// Groups in the order of their keys. By default text is grouped without case, under the key of the group's first item.
TemplateValue groupby_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
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
      (void)less(place(key), place(keyed.front().first));  // check that all keys are comparable before sorting
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

TemplateValue reverse_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments&) {
  std::vector<TemplateValue> items = items_of(meter, subject);
  std::reverse(items.begin(), items.end());
  if (!subject.is_string()) return TemplateValue::list(std::move(items));
  std::string text;
  for (const TemplateValue& item : items) text += item.text();
  return text;
}

TemplateValue sum_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue attribute = arguments.get(0, "attribute", None{});
  TemplateValue sum = arguments.get(1, "start", std::int64_t{0});
  if (sum.is_string()) throw TemplateFailure("sum of strings");
  for (const TemplateValue& item : items_of(meter, subject)) {
    sum = add_values(sum, attribute.is<None>() ? item : get_path(meter, item, attribute));
    meter.charge_bytes(sum.is_list() ? sum.items().size() * 32 : 0);
  }
  return sum;
}

TemplateArguments rest_of(const TemplateArguments& arguments, std::size_t from) {
  TemplateArguments rest;
  rest.positional.assign(
      arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(from, arguments.positional.size())),
      arguments.positional.end());
  return rest;
}

// Marks all positional arguments as used, because they were passed on.
void use_all(TemplateArguments& arguments) {
  if (!arguments.positional.empty()) (void)arguments.find(arguments.positional.size() - 1, {});
}

TemplateValue map_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue attribute = arguments.get_named("attribute", None{});
  const TemplateValue fallback = arguments.get_named("default", Undefined{"there is no such attribute"});
  use_all(arguments);
  std::vector<TemplateValue> results;
  if (!subject.truthy()) return TemplateValue::list({});  // Jinja returns early for any falsy subject, including None
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
TemplateValue select_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
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

TemplateValue batch_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
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

TemplateValue slice_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
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

constexpr NamedFilter kSequenceFilters[] = {
    {"batch", batch_filter},
    {"count", [](TemplateBudget&, const TemplateValue& v, TemplateArguments&) -> TemplateValue { return length(v); }},
    {"dictsort", dictsort_filter},
    {"first", end_filter<false>},
    {"groupby", groupby_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", end_filter<true>},
    {"length", [](TemplateBudget&, const TemplateValue& v, TemplateArguments&) -> TemplateValue { return length(v); }},
    {"list", [](TemplateBudget& meter, const TemplateValue& v,
                TemplateArguments&) { return TemplateValue::list(items_of(meter, v)); }},
    {"map", map_filter},
    {"max", extreme_filter<true>},
    {"min", extreme_filter<false>},
    {"reject", select_filter<false, false>},
    {"rejectattr", select_filter<false, true>},
    {"reverse", reverse_filter},
    {"select", select_filter<true, false>},
    {"selectattr", select_filter<true, true>},
    {"slice", slice_filter},
    {"sort", sort_filter},
    {"sum", sum_filter},
    {"unique", unique_filter},
};

}  // namespace

std::span<const NamedFilter> sequence_filters() { return kSequenceFilters; }

}  // namespace hone
