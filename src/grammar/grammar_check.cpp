#include "grammar/grammar_check.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "core/unicode.h"
#include "grammar/schema_check.h"

namespace hone {
namespace {

// Reads a quantifier {n}, {n,} or {n,m} at the start of the text. Returns its larger number, or -1 if there is none.
// `length` is set to its length.
std::int64_t quantifier(std::string_view text, std::int64_t most, std::size_t& length) {
  const std::size_t end = text.find('}');
  if (end == std::string_view::npos || end < 2) return -1;
  std::int64_t count = -1;
  for (const char* at = text.data() + 1; at < text.data() + end;) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    std::int64_t number = 0;
    const auto [next, error] = std::from_chars(at, text.data() + end, number);
    if (next == at) return -1;
    count = std::max(count, error == std::errc() ? std::min(number, most) : most);
    at = next;
  }
  length = end + 1;
  return count;
}

// Reads an expression once, from its first character to its last, and checks how its repetitions are nested. Text that
// repeats a part which may be empty, or ends in several places, can be divided in so many ways that following it would
// stop a server.
class RepetitionCheck {
 public:
  RepetitionCheck(bool has_rules, std::int64_t most) : has_rules_(has_rules), most_(most) {}

  // Returns the length of the expression with its bounded repetitions written out.
  [[nodiscard]] std::int64_t read(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) i += read_one(text.substr(i));
    while (groups_.size() > 1) close();
    return groups_.back().total;
  }

 private:
  // The length of a group, or of the part that a quantifier follows, and how its repetitions are nested.
  struct Part {
    std::int64_t total = 0;     // written-out positions
    bool may_be_empty = true;   // the alternative under way
    bool has_empty = false;     // one of the alternatives before may be empty
    std::int64_t variable = 1;  // product of nested bounded repetitions whose number varies
    int levels = 0;             // nested repetitions of that kind, and unbounded ones of parts that may be empty
  };

  // Reads what the text begins with and returns its length.
  std::size_t read_one(std::string_view text) {
    const char c = text[0];
    std::size_t length = 1;
    if (c == '\\') {
      add({.total = 1, .may_be_empty = false});
      return std::min<std::size_t>(2, text.size());
    }
    if (c == '[' || (has_rules_ && c == '"')) {
      length = quoted_length(text, c == '[' ? ']' : '"');
      add({.total = static_cast<std::int64_t>(length), .may_be_empty = c == '"' && length == 2});
    } else if (c == '(') {
      open();
    } else if (c == ')') {
      if (groups_.size() > 1) close();
    } else if (c == '|') {
      groups_.back().has_empty |= groups_.back().may_be_empty;
      groups_.back().may_be_empty = true;
    } else if (const std::int64_t times = c == '{' ? quantifier(text, most_ + 1, length) : -1; times >= 0) {
      repeat(times, text.substr(0, length).find(',') != std::string_view::npos, text.starts_with("{0"));
    } else if (c == '?' || c == '*' || c == '+') {
      loop(c);
    } else if (!has_rules_) {
      add({.total = 1, .may_be_empty = false});
    } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      add({.total = 1});  // the name of a rule, of which nothing is known
    }
    return length;
  }
  // Length of a character class or string, with its end.
  static std::size_t quoted_length(std::string_view text, char end) {
    std::size_t i = 1;
    while (i < text.size() && text[i] != end) i += text[i] == '\\' ? 2 : 1;
    return std::min(i + 1, text.size());
  }
  void add(const Part& part) {
    last_ = part;
    before_ = groups_.back();
    join();
  }
  // Makes last_ a part of the group that was before_ without it.
  void join() {
    Part& group = groups_.back() = before_;
    group.total = limited(group.total + last_.total);
    group.may_be_empty &= last_.may_be_empty;
    group.variable = std::max(group.variable, last_.variable);
    group.levels = std::max(group.levels, last_.levels);
  }
  void open() {
    if (std::ssize(groups_) > kMostGrammarDepth)
      throw Error(text_of("has brackets nested deeper than ", kMostGrammarDepth));
    groups_.push_back({});
  }
  void close() {
    Part group = groups_.back();
    groups_.pop_back();
    group.may_be_empty |= group.has_empty;
    group.has_empty = false;
    add(group);
  }
  void loop(char how) {
    if (last_.may_be_empty && how != '?') ++last_.levels;
    check_levels();
    last_.may_be_empty |= how != '+';
    join();
  }
  void repeat(std::int64_t times, bool varies, bool from_zero) {
    if (last_.may_be_empty && times > kMostEmptyRepetitions)
      throw Error(text_of("repeats ", times > most_ ? "more than " : "", std::min(times, most_),
                          " times what may be empty, at most ", kMostEmptyRepetitions));
    if (varies && times > 1) {
      last_.variable = limited(last_.variable * times);
      ++last_.levels;
    }
    check_levels();
    last_.total = limited(last_.total * std::max<std::int64_t>(times, 1));
    last_.may_be_empty |= from_zero;
    join();
  }
  void check_levels() const {
    const std::int64_t most = last_.levels > 2 ? kMostNestedThrice : kMostNested;
    if (last_.levels > 3 || (last_.levels > 1 && last_.variable > most))
      throw Error("nests repetitions whose number varies too deeply or too often");
  }
  [[nodiscard]] std::int64_t limited(std::int64_t value) const { return std::min(value, most_ + 1); }

  static constexpr std::int64_t kMostEmptyRepetitions = 16;
  static constexpr std::int64_t kMostNested = 10'000;
  static constexpr std::int64_t kMostNestedThrice = 100;

  bool has_rules_;
  std::int64_t most_;
  Part last_{};                   // what a quantifier would repeat
  Part before_{};                 // its group without it
  std::vector<Part> groups_{{}};  // open groups, the outermost first
};

// Returns the elements that a JSON description asks for when its bounded lists and strings are written out.
std::int64_t written_out_elements(const Json& json, std::int64_t most, int depth) {
  if (depth > kMostGrammarDepth) throw Error(text_of("is nested deeper than ", kMostGrammarDepth));
  std::int64_t count = 1;
  std::int64_t times = 1;
  const auto limited = [&](std::int64_t value) { return std::min(value, most + 1); };
  if (!json.is_structured()) return count;
  for (const auto& [key, value] : json.items()) {
    count = limited(count + written_out_elements(value, most, depth + 1));
    if (!json.is_object()) continue;
    if ((key == "pattern" || key == "regex" || key == "grammar") && value.is_string())
      count = limited(count + written_out_length(value.get_ref<const std::string&>(), key == "grammar", most));
    if (!value.is_number()) continue;
    const auto number = static_cast<std::int64_t>(std::clamp(value.get<double>(), 0.0, static_cast<double>(most + 1)));
    if (key == "minLength" || key == "maxLength") count = limited(count + number);
    if (key == "minItems" || key == "maxItems" || key == "minProperties" || key == "maxProperties")
      times = std::max(times, number);
  }
  return limited(count * times);
}

// Checks the schemas inside of a structural tag.
void check_inner_schemas(const Json& json) {
  if (!json.is_structured()) return;
  for (const auto& [key, value] : json.items()) {
    if (json.is_object() && key == "json_schema") {
      check_schema(value);
    } else {
      check_inner_schemas(value);
    }
  }
}

}  // namespace

std::int64_t written_out_length(std::string_view expression, bool has_rules, std::int64_t most) {
  return RepetitionCheck(has_rules, most).read(expression);
}

void check_grammar(const GrammarSpec& spec) {
  if (spec.text.empty()) throw Error("is empty");
  if (spec.text.size() > kMostGrammarBytes)
    throw Error(text_of("has ", spec.text.size(), " bytes, at most ", kMostGrammarBytes));
  if (!is_valid_utf8(spec.text) || spec.text.find('\0') != std::string::npos)
    throw Error("is not valid UTF-8, or has a NUL character");
  const bool is_json = spec.kind != GrammarKind::kRegex && spec.kind != GrammarKind::kGrammar;
  const std::int64_t length = is_json
                                  ? written_out_elements(parse_json(spec.text, "grammar"), kMostRepetitions, 0)
                                  : written_out_length(spec.text, spec.kind == GrammarKind::kGrammar, kMostRepetitions);
  if (length > kMostRepetitions)
    throw Error(text_of("asks for more than ", kMostRepetitions, " repetitions, nested ones multiplied"));
  if (spec.kind == GrammarKind::kJsonSchema) check_schema(parse_json(spec.text, "schema"));
  if (spec.kind == GrammarKind::kStructuralTag) check_inner_schemas(parse_json(spec.text, "structural tag"));
}

}  // namespace hone
