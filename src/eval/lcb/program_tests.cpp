#include "eval/lcb/program_tests.h"

#include <zlib.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "core/characters.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // decompressed size of one problem's cases

std::string inflated(std::string_view bytes) {
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) throw Error("", "zlib cannot be initialised");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string text;
  int status = Z_OK;
  while (status == Z_OK && text.size() <= kMostBytes) {
    const std::size_t had = text.size();
    text.resize(had + std::max<std::size_t>(had, 1 << 16));
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + had);
    stream.avail_out = static_cast<uInt>(text.size() - had);
    status = inflate(&stream, Z_NO_FLUSH);
    text.resize(text.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (status != Z_STREAM_END) throw Error("", "private_test_cases is not valid zlib data");
  return text;
}

// Removes a little-endian number of `size` bytes from the beginning of `bytes` and returns it.
std::uint64_t take_number(std::string_view& bytes, std::size_t size) {
  if (bytes.size() < size) throw Error("", "private_test_cases ends within a pickle");
  std::uint64_t value = 0;
  for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  bytes.remove_prefix(size);
  return value;
}

Json json_in(const Json& row, const char* column) {
  const auto place = row.find(column);
  if (place == row.end() || place->is_null()) throw Error("", text_of("lcb needs the column '", column, "'"));
  if (!place->is_string()) return *place;
  return parse_json(place->get_ref<const std::string&>(), text_of("column '", column, "'"));
}

Json private_cases(const Json& row) {
  const auto place = row.find("private_test_cases");
  if (place == row.end() || !place->is_string()) return json_in(row, "private_test_cases");
  const std::string_view text = place->get_ref<const std::string&>();
  if (trim(text).starts_with('[')) return parse_json(text, "column 'private_test_cases'");
  const std::optional<std::string> bytes = decode_base64(trim(text));
  if (!bytes) throw Error("", "private_test_cases is neither JSON nor base64");
  return parse_json(unpickled_text(inflated(*bytes)), "column 'private_test_cases'");
}

void add_cases(ProgramTests& tests, const Json& cases) {
  if (!cases.is_array()) throw Error("", "test cases must be a list");
  for (const Json& test : cases) {
    for (const char* key : {"input", "output"}) {
      if (!test.is_object() || !test.contains(key) || !test[key].is_string()) {
        throw Error("", text_of("a test case has no text field '", key, "'"));
      }
    }
    tests.inputs.push_back(test["input"].get<std::string>());
    tests.outputs.push_back(test["output"].get<std::string>());
  }
}

// Python's Decimal in a canonical form: a sign, digits without leading and trailing zeros, and an exponent.
struct DecimalNumber {
  bool negative = false;
  std::string digits;  // empty: zero; "inf" and "nan" are special values
  std::int64_t exponent = 0;

  [[nodiscard]] bool equals(const DecimalNumber& other) const {
    if (digits == "nan" || other.digits == "nan") return false;
    if (digits.empty() && other.digits.empty()) return true;
    return negative == other.negative && digits == other.digits && exponent == other.exponent;
  }
};

std::optional<DecimalNumber> decimal_of(std::string word) {
  std::erase(word, '_');
  DecimalNumber number;
  std::size_t at = 0;
  if (at < word.size() && (word[at] == '+' || word[at] == '-')) number.negative = word[at++] == '-';
  std::string name = word.substr(at);
  for (char& c : name) c = lower(c);
  if (name == "inf" || name == "infinity") return DecimalNumber{number.negative, "inf", 0};
  if (name == "nan" || name == "snan") return DecimalNumber{number.negative, "nan", 0};
  bool any = false;
  for (bool fraction = false; at < word.size(); ++at) {
    if (is_digit(word[at])) {
      any = true;
      number.digits += word[at];
      number.exponent -= fraction ? 1 : 0;
    } else if (word[at] == '.' && !fraction) {
      fraction = true;
    } else {
      break;
    }
  }
  if (!any) return std::nullopt;
  if (at < word.size()) {
    if (lower(word[at]) != 'e') return std::nullopt;
    const char* begin = word.data() + at + 1;
    const char* const end = word.data() + word.size();
    if (begin != end && *begin == '+') ++begin;
    std::int64_t exponent = 0;
    const auto [stopped, error] = std::from_chars(begin, end, exponent);
    constexpr std::int64_t kLargest = 999'999'999'999'999'999;  // Python's decimal.MAX_EMAX
    if (stopped != end || error != std::errc{} || exponent > kLargest || exponent < -kLargest) return std::nullopt;
    number.exponent += exponent;
  }
  number.digits.erase(0, std::min(number.digits.find_first_not_of('0'), number.digits.size()));
  while (number.digits.ends_with('0')) {
    number.digits.pop_back();
    ++number.exponent;
  }
  return number;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t at = skip_spaces(line, 0); at < line.size(); at = skip_spaces(line, at)) {
    std::size_t end = at;
    while (end < line.size() && white_space_length(line, end) == 0) end = next_code_point(line, end);
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

bool same_decimals(std::string_view printed, std::string_view expected) {
  const std::vector<std::string_view> a = words_of(printed);
  const std::vector<std::string_view> b = words_of(expected);
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = decimal_of(std::string(a[i]));
    const auto y = decimal_of(std::string(b[i]));
    if (!x || !y || !x->equals(*y)) return false;
  }
  return true;
}

bool same_number(std::string_view told, const Json& expected) {
  const std::string digits(told.substr(2));
  if (expected.is_boolean()) return std::strtod(digits.c_str(), nullptr) == (expected.get<bool>() ? 1.0 : 0.0);
  if (expected.is_number_integer() && told.starts_with("i:")) return digits == expected.dump();
  return expected.is_number() && std::strtod(digits.c_str(), nullptr) == expected.get<double>();
}

}  // namespace

std::string unpickled_text(std::string_view bytes) {
  std::optional<std::string> text;
  while (!bytes.empty()) {
    const char code = bytes.front();
    bytes.remove_prefix(1);
    switch (code) {
      case '\x80':  // PROTO
        (void)take_number(bytes, 1);
        break;
      case '\x95':  // FRAME
        (void)take_number(bytes, 8);
        break;
      case '\x8c':  // SHORT_BINUNICODE
      case 'X':     // BINUNICODE
      case '\x8d': {
        const std::uint64_t size = take_number(bytes, code == 'X' ? 4 : code == '\x8c' ? 1 : 8);
        if (text || size > bytes.size()) throw Error("", "the pickle in private_test_cases is not a single text");
        text = std::string(bytes.substr(0, size));
        bytes.remove_prefix(size);
        break;
      }
      case '\x94':  // MEMOIZE
        break;
      case 'q':  // BINPUT
        (void)take_number(bytes, 1);
        break;
      case 'r':  // LONG_BINPUT
        (void)take_number(bytes, 4);
        break;
      case '.':  // STOP
        if (text) return *text;
        [[fallthrough]];
      default:
        throw Error("", "the pickle in private_test_cases is not a single text");
    }
  }
  throw Error("", "private_test_cases ends within a pickle");
}

ProgramTests read_program_tests(const Json& row) {
  ProgramTests tests;
  add_cases(tests, json_in(row, "public_test_cases"));
  add_cases(tests, private_cases(row));
  if (tests.inputs.empty()) throw Error("", "the row has no test cases");
  const Json metadata = json_in(row, "metadata");
  if (metadata.is_object() && metadata.contains("func_name") && metadata["func_name"].is_string()) {
    tests.function = metadata["func_name"].get<std::string>();
  }
  if (tests.function.empty()) return tests;
  for (const std::string& input : tests.inputs) {
    for (const std::string& line : split(input, '\n')) (void)parse_json(line, "an argument of a test case");
  }
  for (const std::string& output : tests.outputs) (void)parse_json(output, "the output of a test case");
  return tests;
}

bool same_lines(std::string_view printed, std::string_view expected) {
  const std::vector<std::string> a = split(strip(printed), '\n');
  const std::vector<std::string> b = split(strip(expected), '\n');
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::string_view x = strip(a[i]);
    const std::string_view y = strip(b[i]);
    if (x != y && !same_decimals(x, y)) return false;
  }
  return true;
}

bool same_value(const Json& told, const Json& expected) {
  if (told.is_array()) {
    if (!expected.is_array() || told.size() != expected.size()) return false;
    for (std::size_t i = 0; i < told.size(); ++i) {
      if (!same_value(told[i], expected[i])) return false;
    }
    return true;
  }
  if (told.is_object()) {
    if (!expected.is_object() || told.size() != expected.size()) return false;
    for (const auto& [key, value] : told.items()) {
      if (!expected.contains(key) || !same_value(value, expected[key])) return false;
    }
    return true;
  }
  if (!told.is_string()) return false;
  const auto& word = told.get_ref<const std::string&>();
  if (word == "n") return expected.is_null();
  if (word.starts_with("s:")) {
    return expected.is_string() && std::string_view(word).substr(2) == expected.get_ref<const std::string&>();
  }
  return (word.starts_with("i:") || word.starts_with("f:")) && same_number(word, expected);
}

}  // namespace hone
