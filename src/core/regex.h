// Regular expressions over UTF-8 text, matched by PCRE2 within limits on steps and memory. Their syntax and semantics
// are Perl's, with Unicode's character classes; "\n" is the only line end. Source:
// https://www.pcre.org/current/doc/html/pcre2pattern.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "core/error.h"

namespace hone {

// Limits of the attempt to match at one character of a text.
struct RegexLimits {
  std::uint32_t steps = 1'000'000;       // backtracking points that are tried
  std::uint32_t kibibytes = 16 * 1'024;  // memory for backtracking
};

// An expression cannot be compiled, or a match exceeds the limits. The message names neither expression nor text, which
// the caller adds.
class RegexError : public Error {
 public:
  explicit RegexError(std::string_view what, std::size_t at = 0) : Error("", what), at_(at) {}
  // Offset of the problem in the expression, in bytes.
  [[nodiscard]] std::size_t at() const { return at_; }

 private:
  std::size_t at_;
};

// A match. Both views point into the text.
struct RegexMatch {
  std::string_view whole;
  std::string_view group;  // the first group; empty if the expression has none or if it took no part in the match
};

// A compiled expression. Copies share it. Thread-safe.
class Regex {
 public:
  // Throws RegexError if the expression is invalid.
  explicit Regex(std::string_view expression, RegexLimits limits = {});

  // Returns true if the expression matches the whole text, as Python's re.fullmatch. Throws RegexError if the text is
  // not UTF-8 or if a limit is exceeded.
  [[nodiscard]] bool fits(std::string_view text) const;
  // Calls `visit` for all matches that do not overlap, from left to right, as Python's re.finditer. Throws like fits.
  // The time is proportional to the length of the text if the steps at each character are bounded and the expression
  // does not begin with a letter in both cases, for which PCRE2 may search the whole rest of the text after each match.
  void for_each_match(std::string_view text, const std::function<void(const RegexMatch&)>& visit) const;

 private:
  struct Code;

  std::shared_ptr<const Code> code_;
  RegexLimits limits_;
};

}  // namespace hone
