// Jinja's filters: {{ x | trim }}. tojson is that of transformers (no HTML escapes).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/unicode.h"
#include "jinja/filters.h"
#include "jinja/python_format.h"
#include "jinja/python_text.h"

namespace hone {
namespace {

TemplateValue default_filter(TemplateBudget&, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue fallback = arguments.get(0, "default_value", "");
  const bool also_false = arguments.get_bool(1, "boolean", false);
  return subject.is_undefined() || (also_false && !subject.truthy()) ? fallback : subject;
}

TemplateValue trim_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue* characters = arguments.find(0, "chars");
  std::optional<std::string> set;
  if (characters != nullptr && !characters->is<None>()) set = arguments.get_text(0, "chars", {});
  const std::string text = printed(meter, subject);
  if (set) meter.charge_search(text, *set);
  return python_strip(text, set, StripSide::kBoth);
}

TemplateValue tojson_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
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
      throw TemplateFailure("tojson: separators is not a pair");
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

TemplateValue replace_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const std::string text = printed(meter, subject), from = printed(meter, arguments.get(0, "old", "")),
                    to = printed(meter, arguments.get(1, "new", ""));
  const TemplateValue count = arguments.get(2, "count", None{});
  meter.charge_search(text, from);
  meter.charge_bytes(text.size(), 1 + to.size() / (from.size() + 1));
  return python_replace(text, from, to, count.is<None>() ? -1 : arguments.get_integer(2, "count", -1));
}

TemplateValue int_filter(TemplateBudget&, const TemplateValue& subject, TemplateArguments& arguments) {
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

TemplateValue float_filter(TemplateBudget&, const TemplateValue& subject, TemplateArguments& arguments) {
  TemplateValue fallback = arguments.get(0, "default", 0.0);
  if (subject.is_number()) return subject.number();
  if (!subject.is_string()) return fallback;
  const std::string_view text = strip_python_space(subject.text());
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc{} && read.ptr == text.data() + text.size() && !text.empty() ? TemplateValue(number)
                                                                                          : fallback;
}

TemplateValue abs_filter(TemplateBudget&, const TemplateValue& subject, TemplateArguments&) {
  if (subject.is<double>()) return std::fabs(subject.number());
  if (!subject.is_integral() || subject.integer() == INT64_MIN)
    throw TemplateFailure(text_of("abs of a value of type ", subject.type_name()));
  return std::abs(subject.integer());
}

TemplateValue round_filter(TemplateBudget&, const TemplateValue& subject, TemplateArguments& arguments) {
  if (!subject.is_number()) throw TemplateFailure(text_of("round of a value of type ", subject.type_name()));
  const std::int64_t precision = arguments.get_integer(0, "precision", 0);
  const std::string method = arguments.get_text(1, "method", "common");
  if (precision < 0 || precision > 15)
    throw TemplateFailure(text_of("round to ", precision, " digits is not supported"));
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double number = subject.number() * scale;
  if (method == "ceil") return std::ceil(number) / scale;
  if (method == "floor") return std::floor(number) / scale;
  if (method != "common") throw TemplateFailure("round: the method is not common, ceil or floor");
  return std::nearbyint(number) / scale;
}

TemplateValue indent_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const TemplateValue width = arguments.get(0, "width", std::int64_t{4});
  const bool first = arguments.get_bool(1, "first", false);
  const bool blank = arguments.get_bool(2, "blank", false);
  if (!width.is_string() && (!width.is_integral() || width.integer() > 1000))
    throw TemplateFailure("indent: the width is neither text nor an integer up to 1000");
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

// Jinja's rule for title case: words begin after white space and opening brackets. (str.title() also starts a word
// after an apostrophe.)
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

TemplateValue truncate_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const std::int64_t length = arguments.get_integer(0, "length", 255);
  const bool kills_words = arguments.get_bool(1, "killwords", false);
  const std::string end = arguments.get_text(2, "end", "...");
  const TemplateValue leeway = arguments.get(3, "leeway", None{});
  const std::int64_t most = length + (leeway.is<None>() ? 5 : arguments.get_integer(3, "leeway", 5));
  std::string text = printed(meter, subject);
  const auto offsets = character_offsets(text);
  if (static_cast<std::int64_t>(offsets.size()) - 1 <= most) return text;
  const std::int64_t kept = length - static_cast<std::int64_t>(count_code_points(end));
  if (kept < 0) throw TemplateFailure("truncate: the length is less than that of `end`");
  std::string cut = text.substr(0, offsets[static_cast<std::size_t>(kept)]);
  if (!kills_words) cut = python_split(cut, " ", 1, true).front();
  return cut + end;
}

TemplateValue format_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  const std::string text = printed(meter, subject);
  const TemplateValue positional = arguments.take_rest();
  const TemplateValue named = arguments.take_named_rest();
  if (!positional.items().empty() && !named.dict_data().items.empty()) {
    throw TemplateFailure("format takes positional or named arguments, not both");
  }
  return format_percent(meter, text, named.dict_data().items.empty() ? positional : named);
}

TemplateValue center_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments& arguments) {
  TemplateArguments width;
  width.positional.emplace_back(arguments.get_integer(0, "width", 80));
  return call_method(meter, printed(meter, subject), "center", width);
}

TemplateValue escape_filter(TemplateBudget& meter, const TemplateValue& subject, TemplateArguments&) {
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

constexpr NamedFilter kFilters[] = {
    {"abs", abs_filter},
    {"attr",
     [](TemplateBudget&, const TemplateValue& v, TemplateArguments& a) {
       return v.is_dict() && !has_method(v, a.get_text(0, "name", ""))
                  ? TemplateValue(Undefined{"a dict has no such attribute"})
                  : get_attribute(v, a.get_text(0, "name", ""));
     }},
    {"capitalize",
     [](TemplateBudget& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return python_capitalize(printed(meter, v));
     }},
    {"center", center_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"float", float_filter},
    {"forceescape", escape_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"lower",
     [](TemplateBudget& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return to_lower(printed(meter, v));
     }},
    {"replace", replace_filter},
    {"round", round_filter},
    {"safe",
     [](TemplateBudget& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return printed(meter, v);
     }},
    {"string",
     [](TemplateBudget& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return printed(meter, v);
     }},
    {"title",
     [](TemplateBudget& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return title_text(printed(meter, v));
     }},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"upper",
     [](TemplateBudget& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return to_upper(printed(meter, v));
     }},
    {"wordcount",
     [](TemplateBudget& meter, const TemplateValue& v, TemplateArguments&) -> TemplateValue {
       return static_cast<std::int64_t>(python_split(printed(meter, v), std::nullopt, -1, false).size());
     }},
};

const NamedFilter* find_filter(std::string_view name) {
  for (const std::span<const NamedFilter> filters : {std::span<const NamedFilter>(kFilters), sequence_filters()}) {
    const auto found =
        std::find_if(filters.begin(), filters.end(), [&](const NamedFilter& f) { return f.name == name; });
    if (found != filters.end()) return &*found;
  }
  return nullptr;
}

}  // namespace

bool has_filter(std::string_view name) { return find_filter(name) != nullptr; }

TemplateValue apply_filter(TemplateBudget& meter, std::string_view name, const TemplateValue& subject,
                           TemplateArguments& arguments) {
  meter.charge_bytes(subject.is_string() ? subject.text().size() : 0);
  const NamedFilter* filter = find_filter(name);
  if (filter == nullptr) throw TemplateFailure(text_of("the filter '", name, "' is not known"));
  TemplateValue result = filter->apply(meter, subject, arguments);
  arguments.finish(name);
  return result;
}

}  // namespace hone
