// Parses sets of code points in a pattern: bracketed classes, escapes and properties.
#include "core/error.h"
#include "text/pattern_parser.h"

namespace hone {
namespace {

constexpr std::string_view kCategoryNames[kCategoryCount] = {
    "Cn", "Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl",
    "No", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"};

CodePointSet set_of_categories(std::string_view prefix) {
  CodePointSet set;
  for (int i = 0; i < kCategoryCount; ++i) {
    if (kCategoryNames[i].substr(0, prefix.size()) == prefix) set.add_category(static_cast<Category>(i));
  }
  return set;
}

struct NamedProperty {
  std::string_view name;
  std::string_view category;
};
constexpr NamedProperty kLongNames[] = {{"Letter", "L"},      {"Mark", "M"},   {"Number", "N"},
                                        {"Punctuation", "P"}, {"Symbol", "S"}, {"Separator", "Z"}};

}  // namespace

char32_t PatternParser::parse_hex_escape(char kind) {
  const bool braces = kind != 'u' && accept("{");
  const std::size_t digits = braces ? 8 : kind == 'u' ? 4 : 2;
  char32_t value = 0;
  std::size_t count = 0;
  for (; count < digits; ++count) {
    const char c = peek();
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) break;
    value = value * 16 + static_cast<char32_t>(digit);
    ++at_;
  }
  if (count == 0 || (braces && !accept("}")) || value > 0x10FFFF) fail("invalid hexadecimal escape");
  return value;
}

CodePointSet PatternParser::parse_escape(bool in_class) {
  CodePointSet set;
  const char32_t c = next_code_point();
  switch (c) {
    case 's':
    case 'S':
      set.add_pattern_space();
      break;
    case 'd':
    case 'D':
      set.add_category(Category::kNd);
      break;
    case 'w':
    case 'W':
      for (const auto* name : {"L", "M", "Nd", "Pc"}) set.add_set(set_of_categories(name));
      break;
    case 'p':
      return parse_property(false);
    case 'P':
      return parse_property(true);
    case 'r':
      set.add('\r');
      break;
    case 'n':
      set.add('\n');
      break;
    case 't':
      set.add('\t');
      break;
    case 'f':
      set.add('\f');
      break;
    case 'v':
      set.add('\v');
      break;
    case 'x':
    case 'u':
      set.add(parse_hex_escape(static_cast<char>(c)));
      break;
    default:
      if (c < 0x80 && ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))) {
        fail(text_of("the escape \\", static_cast<char>(c), in_class ? " in a class" : ""));
      }
      set.add(c);
  }
  if (c == 'S' || c == 'D' || c == 'W') set.negate();
  return set;
}

CodePointSet PatternParser::parse_property(bool negated) {
  if (!accept("{")) fail("\\p without {");
  if (accept("^")) negated = !negated;
  const std::size_t end = source_.find('}', at_);
  if (end == std::string_view::npos) fail("\\p{ without }");
  std::string_view name = source_.substr(at_, end - at_);
  for (const auto& known : kLongNames) {
    if (known.name == name) name = known.category;
  }
  CodePointSet set = set_of_categories(name);
  const bool known = !name.empty() && name.size() <= 2 &&
                     (set.contains('a') || !set.only_ascii() || set.contains('0') || set.contains('!') ||
                      set.contains('+') || set.contains(' '));
  bool listed = false;
  for (const std::string_view category : kCategoryNames) listed = listed || category.substr(0, name.size()) == name;
  if (!known || !listed) fail(text_of("the property ", name));
  at_ = end + 1;
  if (negated) set.negate();
  return set;
}

CodePointSet PatternParser::parse_class() {
  CodePointSet set;
  const bool negated = accept("^");
  bool is_first = true;
  while (is_first || peek() != ']') {
    if (at_end()) fail("a class without its ]");
    is_first = false;
    if (accept("[")) {
      if (peek() == ':') fail("a POSIX class");
      if (++depth_ > kDeepestGroup) fail("classes nested too deep");
      set.add_set(parse_class());
      --depth_;
      continue;
    }
    if (accept("&&")) fail("an intersection of classes");
    const bool escaped = peek() == '\\';
    const char kind = peek(1);
    char32_t low = 0;
    if (escaped) {
      ++at_;
      const bool is_character = kind == 'x' || kind == 'u';
      if (is_character) {
        ++at_;
        low = parse_hex_escape(kind);
      } else if (std::string_view("sSdDwWpPrntfv").find(kind) != std::string_view::npos) {
        set.add_set(parse_escape(true));
        continue;
      } else {
        low = next_code_point();
        if (low < 0x80 && ((low >= '0' && low <= '9') || (low >= 'A' && low <= 'Z') || (low >= 'a' && low <= 'z'))) {
          fail(text_of("the escape \\", static_cast<char>(low), " in a class"));
        }
      }
    } else {
      low = next_code_point();
    }
    char32_t high = low;
    if (peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
      ++at_;
      if (accept("\\")) {
        const char32_t c = next_code_point();
        high = c == 'x' || c == 'u' ? parse_hex_escape(static_cast<char>(c)) : c;
        if (c < 0x80 && c != 'x' && c != 'u' && ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')))
          fail("a range that ends in an escape");
      } else {
        high = next_code_point();
      }
      if (high < low) fail("a range with its bounds reversed");
    }
    set.add_range(low, high);
  }
  ++at_;
  if (ignore_case_) set.add_case_variants();
  if (negated) set.negate();
  return set;
}

}  // namespace hone
