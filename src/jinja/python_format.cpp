#include "jinja/python_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>

#include "core/error.h"
#include "core/unicode.h"

namespace hone {
namespace {

constexpr std::int64_t kWidest = 10'000;  // maximum width and precision of a field

[[noreturn]] void fail_format(std::string_view what) { throw TemplateFailure(text_of("formatting: ", what)); }

// A field of either kind of format.
struct Field {
  std::string fill = " ";
  char align = 0;  // < > ^ =; 0: depends on the type
  char sign = '-';
  bool alternate = false;
  char grouping = 0;  // ',' or '_'; 0: none
  std::int64_t width = 0;
  std::optional<std::int64_t> precision;
  char type = 0;
};

std::int64_t read_number(std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > kWidest) fail_format(text_of("a width or precision over ", kWidest));
  }
  return value;
}

std::string padded(const std::string& text, const Field& field, char fallback) {
  const auto missing = field.width - static_cast<std::int64_t>(count_code_points(text));
  if (missing <= 0) return text;
  const char align = field.align == 0 ? fallback : field.align;
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before, after;
  for (std::int64_t i = 0; i < missing; ++i) (i < left ? before : after) += field.fill;
  if (align != '=') return before + text + after;
  const std::size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
  const std::size_t prefix = text.substr(sign, 1) == "0" && text.size() > sign + 1 && text[sign + 1] > '9' ? 2 : 0;
  return text.substr(0, sign + prefix) + before + text.substr(sign + prefix);
}

std::string with_sign(const std::string& digits, bool negative, const Field& field) {
  if (negative) return "-" + digits;
  return field.sign == '+' ? "+" + digits : field.sign == ' ' ? " " + digits : digits;
}

std::string grouped(std::string digits, char separator, std::size_t size) {
  if (separator == 0) return digits;
  std::size_t end = std::min(digits.find_first_of(".eE%"), digits.size());
  while (end > size) digits.insert(end -= size, 1, separator);
  return digits;
}

std::string integer_digits(std::uint64_t value, unsigned base, bool upper) {
  std::string digits;
  do {
    const auto digit = static_cast<unsigned>(value % base);
    digits.insert(digits.begin(), static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10));
    value /= base;
  } while (value != 0);
  return digits;
}

std::string format_integer(std::int64_t value, const Field& field) {
  const bool negative = value < 0;
  const std::uint64_t size = negative ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  const unsigned base = field.type == 'b'                        ? 2
                        : field.type == 'o'                      ? 8
                        : field.type == 'x' || field.type == 'X' ? 16
                                                                 : 10;
  std::string digits = integer_digits(size, base, field.type == 'X');
  if (field.precision && static_cast<std::int64_t>(digits.size()) < *field.precision) {
    digits.insert(0, static_cast<std::size_t>(*field.precision) - digits.size(), '0');
  }
  digits = grouped(std::move(digits), field.grouping, base == 10 ? 3 : 4);
  if (field.alternate && base != 10) digits = std::string("0") + field.type + digits;
  return padded(with_sign(digits, negative, field), field, '>');
}

std::string format_real(double value, const Field& field) {
  const bool percent = field.type == '%';
  const std::array<char, 6> format{'%',
                                   field.alternate ? '#' : '.',
                                   field.alternate ? '.' : '*',
                                   field.alternate ? '*' : (percent ? 'f' : field.type),
                                   field.alternate ? (percent ? 'f' : field.type) : '\0',
                                   '\0'};
  const double size = std::fabs(value) * (percent ? 100.0 : 1.0);
  const int precision = static_cast<int>(field.precision.value_or(6));
  std::string digits(512 + static_cast<std::size_t>(precision), '\0');
  const int length = std::snprintf(digits.data(), digits.size(), format.data(), precision, size);
  digits.resize(static_cast<std::size_t>(std::max(length, 0)));
  if (percent) digits += '%';
  const bool negative = std::signbit(value) && !std::isnan(value);
  return padded(with_sign(grouped(std::move(digits), field.grouping, 3), negative, field), field, '>');
}

std::string cut_text(const std::string& text, const Field& field) {
  if (!field.precision) return text;
  std::size_t at = 0;
  for (std::int64_t i = 0; i < *field.precision && at < text.size(); ++i) at += decode_utf8(text, at).size;
  return text.substr(0, at);
}

bool is_real_type(char type) { return std::string_view("eEfFgG").find(type) != std::string_view::npos; }

std::string character_of(std::int64_t value) {
  if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail_format("%c: not a code point");
  std::string text;
  append_utf8(text, static_cast<char32_t>(value));
  return text;
}

// The arguments of a % format, in order.
class PercentArguments {
 public:
  explicit PercentArguments(const TemplateValue& all)
      : all_(all), is_tuple_(all.is_list() && all.as<TemplateValue::List>()->is_tuple) {}

  const TemplateValue& next() {
    if (is_tuple_ ? used_ >= all_.items().size() : used_ > 0) fail_format("not enough arguments for format string");
    return is_tuple_ ? all_.items()[used_++] : (++used_, all_);
  }
  const TemplateValue& named(std::string_view name) {
    if (!all_.is_dict()) fail_format("format requires a mapping");
    const TemplateValue* value = all_.dict_data().find(name);
    if (value == nullptr) fail_format(text_of("there is no key '", name, "'"));
    used_ = 1;
    return *value;
  }
  void finish() const {
    const bool all_used = is_tuple_ ? used_ == all_.items().size() : used_ > 0 || all_.is_dict() || all_.is_list();
    if (!all_used) fail_format("not all arguments converted during string formatting");
  }

 private:
  const TemplateValue& all_;
  bool is_tuple_;
  std::size_t used_ = 0;
};

std::string percent_value(TemplateBudget& meter, const TemplateValue& value, Field& field) {
  const char type = field.type;
  if (type == 's' || type == 'r') {
    meter.charge_bytes(value.shape().size);
    return padded(cut_text(type == 's' ? to_text(value) : to_repr(value), field), field, '>');
  }
  if (type == 'c') {
    const bool one = value.is_string() && count_code_points(value.text()) == 1;
    if (!one && !value.is_integral()) fail_format("%c requires int or char");
    return padded(one ? value.text() : character_of(value.integer()), field, '>');
  }
  const bool integral = std::string_view("diuoxX").find(type) != std::string_view::npos;
  if (!integral && !is_real_type(type)) fail_format(text_of("unsupported format character '", type, "'"));
  if (!value.is_number()) fail_format(text_of("%", type, " format: a number is required, not ", value.type_name()));
  if (!integral) return format_real(value.number(), field);
  if (type == 'i' || type == 'u') field.type = 'd';
  if (value.is_integral()) return format_integer(value.integer(), field);
  const double number = value.number();
  if (field.type != 'd' || !(std::fabs(number) < 9.0e18))
    fail_format(text_of("%", type, " format: an integer is required"));
  return format_integer(static_cast<std::int64_t>(number), field);
}

Field read_percent(std::string_view format, std::size_t& at, PercentArguments& arguments) {
  Field field;
  bool zero = false;
  for (; at < format.size() && std::string_view("#0- +").find(format[at]) != std::string_view::npos; ++at) {
    const char flag = format[at];
    if (flag == '#') field.alternate = true;
    if (flag == '0') zero = true;
    if (flag == '-') field.align = '<';
    if (flag == '+' || (flag == ' ' && field.sign != '+')) field.sign = flag;
  }
  const auto number = [&]() -> std::int64_t {
    if (at >= format.size() || format[at] != '*') return read_number(format, at);
    ++at;
    const TemplateValue& value = arguments.next();
    if (!value.is_integral() || std::abs(value.integer()) > kWidest) fail_format("* needs an int of at most 10000");
    return value.integer();
  };
  field.width = number();
  if (field.width < 0) {
    field.align = '<';
    field.width = -field.width;
  }
  if (at < format.size() && format[at] == '.') {
    ++at;
    field.precision = std::max<std::int64_t>(0, number());
  }
  if (at >= format.size()) fail_format("incomplete format");
  field.type = format[at++];
  const bool numeric = std::string_view("diuoxXeEfFgG").find(field.type) != std::string_view::npos;
  if (zero && field.align == 0 && numeric) {
    field.fill = "0";
    field.align = '=';
  }
  return field;
}

// Reads the specification after the colon of {name:spec}.
Field read_specification(std::string_view spec) {
  Field field;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t i) {
    return i < spec.size() && std::string_view("<>^=").find(spec[i]) != std::string_view::npos;
  };
  const std::size_t first = spec.empty() ? 0 : decode_utf8(spec, 0).size;
  if (first > 0 && is_align(first)) {
    field.fill = spec.substr(0, first);
    field.align = spec[first];
    at = first + 1;
  } else if (is_align(0)) {
    field.align = spec[at++];
  }
  const auto accept = [&](std::string_view any) {
    return at < spec.size() && any.find(spec[at]) != std::string_view::npos ? spec[at++] : '\0';
  };
  if (const char sign = accept("+- ")) field.sign = sign;
  field.alternate = accept("#") != 0;
  if (accept("0") != 0 && field.align == 0) {
    field.fill = "0";
    field.align = '=';
  }
  field.width = read_number(spec, at);
  field.grouping = accept(",_");
  if (accept(".") != 0) field.precision = read_number(spec, at);
  field.type = accept("bcdeEfFgGnosxX%");
  if (at != spec.size()) fail_format(text_of("the format specification '", spec, "' is not supported"));
  return field;
}

std::string formatted(TemplateBudget& meter, const TemplateValue& value, std::string_view spec) {
  meter.charge_bytes(value.shape().size);
  if (spec.empty()) return to_text(value);
  Field field = read_specification(spec);
  if (value.is<double>() || (value.is_integral() && (is_real_type(field.type) || field.type == '%'))) {
    if (field.type == 0 || field.type == 'n') {
      if (field.precision) fail_format("a precision without a type is not supported");
      return padded(to_text(value), field, '>');
    }
    if (!is_real_type(field.type) && field.type != '%') fail_format(text_of("the code '", field.type, "' for a float"));
    return format_real(value.number(), field);
  }
  if (value.is_integral() && !(value.is<bool>() && field.type == 0)) {
    if (field.type == 'c') return padded(character_of(value.integer()), field, '<');
    if (field.type == 's' || field.precision) fail_format("the specification does not fit an integer");
    return format_integer(value.integer(), field);
  }
  if (!value.is_string() && !value.is<bool>())
    fail_format(text_of("a specification for a value of type ", value.type_name()));
  if ((field.type != 0 && field.type != 's') || field.align == '=')
    fail_format(text_of("the code '", field.type, "' for a string"));
  return padded(cut_text(to_text(value), field), field, '<');
}

// Resolves {0.name[key]}, starting from the argument.
TemplateValue field_value(TemplateBudget& meter, std::string_view name, TemplateArguments& arguments,
                          std::size_t& automatic) {
  std::size_t at = std::min(name.find_first_of(".["), name.size());
  const std::string first(name.substr(0, at));
  const bool is_index = first.find_first_not_of("0123456789") == std::string::npos;
  const TemplateValue* found = nullptr;
  if (is_index) {
    if (first.size() > 6) fail_format("an index that is too large");
    const std::size_t index = first.empty() ? automatic++ : static_cast<std::size_t>(std::stoul(first));
    found = index < arguments.positional.size() ? &arguments.positional[index] : nullptr;
    if (found == nullptr) fail_format(text_of("there is no argument ", index));
  } else {
    found = arguments.find(arguments.positional.size(), first);
    if (found == nullptr) fail_format(text_of("there is no argument '", first, "'"));
  }
  TemplateValue value = *found;
  while (at < name.size()) {
    const bool is_item = name[at] == '[';
    const std::size_t end = is_item ? name.find(']', at) : std::min(name.find_first_of(".[", at + 1), name.size());
    if (end == std::string_view::npos) fail_format("a [ without its ]");
    const std::string part(name.substr(at + 1, end - at - 1));
    const bool number = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    value = is_item ? get_item(meter, value,
                               number ? TemplateValue(static_cast<std::int64_t>(std::stol(part))) : TemplateValue(part))
                    : get_attribute(value, part);
    if (value.is_undefined()) throw TemplateFailure(value.as<Undefined>().name);
    at = end + (is_item ? 1 : 0);
  }
  return value;
}

}  // namespace

std::string format_percent(TemplateBudget& meter, std::string_view format, const TemplateValue& values) {
  PercentArguments arguments(values);
  std::string out;
  for (std::size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    ++at;
    const TemplateValue* named = nullptr;
    if (at < format.size() && format[at] == '(') {
      const std::size_t end = format.find(')', at);
      if (end == std::string_view::npos) fail_format("incomplete format key");
      named = &arguments.named(format.substr(at + 1, end - at - 1));
      at = end + 1;
    }
    Field field = read_percent(format, at, arguments);
    out += field.type == '%' ? "%" : percent_value(meter, named != nullptr ? *named : arguments.next(), field);
    meter.charge_bytes(static_cast<std::uint64_t>(field.width));
  }
  arguments.finish();
  meter.charge_bytes(out.size());
  return out;
}

std::string format_braces(TemplateBudget& meter, std::string_view format, TemplateArguments& arguments) {
  std::string out;
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < format.size();) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      out += c;
      ++at;
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      out += c;
      at += 2;
      continue;
    }
    const std::size_t end = format.find('}', at);
    if (c == '}' || end == std::string_view::npos) fail_format("single '{' or '}'");
    std::string_view field = format.substr(at + 1, end - at - 1);
    if (field.find('{') != std::string_view::npos) fail_format("fields within fields are not supported");
    const std::size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = colon < field.size() ? field.substr(colon + 1) : std::string_view();
    field = field.substr(0, colon);
    const std::size_t mark = field.find('!');
    const std::string_view conversion = mark == std::string_view::npos ? std::string_view() : field.substr(mark + 1);
    TemplateValue value = field_value(meter, field.substr(0, mark), arguments, automatic);
    if (!conversion.empty() && conversion != "s" && conversion != "r") fail_format("the conversion is not !r or !s");
    meter.charge_bytes(value.shape().size);
    if (!conversion.empty()) value = conversion == "r" ? to_repr(value) : to_text(value);
    out += formatted(meter, value, spec);
    meter.charge_bytes(static_cast<std::uint64_t>(out.size() / 8));
    at = end + 1;
  }
  // Arguments that no field uses are not an error.
  if (!arguments.positional.empty()) (void)arguments.find(arguments.positional.size() - 1, {});
  for (std::size_t i = 0; i < arguments.named.size(); ++i) (void)arguments.get_named(arguments.named[i].first, {});
  return out;
}

}  // namespace hone
