// One comparison of a completion's answer with a gold: what rewards and evaluation ask for, and what comes of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "math_equality/answer.h"

namespace hone {

// The texts stay the caller's.
struct MathComparison {
  std::string_view gold;
  std::string_view text;  // the completion
  AnswerRule gold_rule;
  AnswerRule text_rule;
  bool bare_gold = false;  // where nothing is found in the gold, all of it is LaTeX
  bool strict = false;     // strictly_equal rather than equal
};

enum class MathVerdict : std::uint8_t {
  different,
  equal,
  no_gold,   // no answer can be read from the gold
  too_long,  // it took more work than a comparison may, or more time
  failed,    // the process that compared them died
};

struct MathOutcome {
  MathVerdict verdict = MathVerdict::failed;
  std::string extracted;  // the answer that was found in the text; empty where there is none
};

// What a comparison may take, with all that it consists of: reading the answer, every pair of elements of two sets. The
// count is the same on every machine. Reading a gold may take as much; one that takes more cannot be read.
inline constexpr std::int64_t kMostWork = 4'000'000;

// open-r1's rules.
[[nodiscard]] MathComparison reward_comparison(std::string_view gold, std::string_view text, bool strict = false);

[[nodiscard]] std::optional<MathAnswer> read_gold(const MathComparison& comparison);
// Compares in this process and with no limit on time. Never throws but for want of memory.
[[nodiscard]] MathOutcome compare_with(const std::optional<MathAnswer>& gold, const MathComparison& comparison);
[[nodiscard]] MathOutcome compare_here(const MathComparison& comparison);
// The same for the same texts and rules, and for no others.
[[nodiscard]] std::string fingerprint(const MathComparison& comparison);

}  // namespace hone
