#include "eval/gpqa/letters.h"

#include <array>
#include <vector>

#include "core/immortal.h"
#include "core/regex.h"
#include "core/unicode.h"

namespace hone {
namespace {

// White space of Python's re; PCRE2's \s lacks four control characters and has U+180E.
constexpr std::string_view kSpace =
    "[\\t-\\r\\x1C-\\x20\\x85\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}]";
constexpr std::string_view kLetter = "([A-D])";
// A letter that is a word, after the space or the beginning of the text that precedes it.
constexpr std::string_view kWord = "(?:\\*\\*)?([A-D])(?:\\*\\*)?(?:[.,: ]|$)";

// Each pattern takes a bounded number of steps at each character; the largest is about 400, for 100 skipped characters.
constexpr RegexLimits kLimits{.steps = 5'000, .kibibytes = 1'024};

// Matches `words` in any case, as Python's (?i:...): there "i" and "s" have further forms, which PCRE2 does not all
// know. The branch that cannot match keeps PCRE2 from looking for the first letter before it tries to match. It would
// look for both cases of the letter, again for each match and possibly up to the end of the text.
std::string any_case(std::string_view words) {
  std::string pattern;
  for (const char c : words) {
    if (c < 'a' || c > 'z') {
      pattern += c;
      continue;
    }
    const std::string_view more = c == 'i' ? "\\x{130}\\x{131}" : c == 's' ? "\\x{17F}" : "";
    const std::string letter = text_of('[', static_cast<char>(c - 'a' + 'A'), c, more, ']');
    pattern += pattern.empty() ? text_of("(?:", letter, "|_(?!))") : letter;
  }
  return pattern;
}

// lighteval's expressions with two changes that do not change what matches. A run of white space is matched as a whole
// (++, *+) and from its beginning only ((?<!...)), because what follows cannot be white space. After "answer", a letter
// that is a word cannot begin the text.
std::array<std::string, 7> make_patterns() {
  return {
      text_of(any_case("final answer is"), ":?", kSpace, "*+", kLetter, "\\.?", kSpace, "?I hope"),
      text_of(any_case("final answer"), "[^\\n]{0,100}?(?<!", kSpace, ")", kSpace, "++is:?", kSpace, "*+", kLetter),
      text_of(any_case("answer"), ":[^\\n]{0,50}? ", kWord),
      text_of(any_case("answer"), "[^\\n]{0,50}? ", kWord),
      text_of("^", kWord),
      text_of("(?:^| )", kWord),
      std::string(kLetter),
  };
}

const std::vector<Regex>& letter_expressions() {
  static Immortal<std::vector<Regex>> expressions([] {
    std::vector<Regex> made;
    for (const std::string& pattern : letter_patterns()) made.emplace_back(pattern, kLimits);
    return made;
  }());
  return expressions.get();
}

}  // namespace

std::span<const std::string> letter_patterns() {
  static Immortal<std::array<std::string, 7>> patterns(make_patterns());
  return patterns.get();
}

std::optional<char> chosen_letter(std::string_view text) {
  const std::string valid = replace_invalid_utf8(text);
  for (const Regex& expression : letter_expressions()) {
    std::optional<char> letter;
    expression.for_each_match(valid, [&](const RegexMatch& match) { letter = match.group.front(); });
    if (letter) return letter;
  }
  return std::nullopt;
}

}  // namespace hone
