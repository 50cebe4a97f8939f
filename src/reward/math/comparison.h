// One comparison of a completion's answer with a gold: what rewards and evaluation ask for, and what comes of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "reward/math/answer.h"

namespace hone {

// The texts stay the caller's.
struct MathComparison {
  std::string_view gold;
  std::string_view text;  // the completion
  AnswerRule gold_rule;
  AnswerRule text_rule;
  bool bare_gold = false;  // where nothing is found in the gold, all of it is LaTeX
};

enum class MathVerdict : std::uint8_t {
  different,
  equal,
  no_gold,    // no answer can be read from the gold
  timed_out,  // it took more processor time than the limit
  failed,     // the process that compared them died, or stood still
};

struct MathOutcome {
  MathVerdict verdict = MathVerdict::failed;
  std::string extracted;  // the answer that was found in the text; empty where there is none
};

// open-r1's rules.
[[nodiscard]] MathComparison reward_comparison(std::string_view gold, std::string_view text);

[[nodiscard]] std::optional<MathAnswer> read_gold(const MathComparison& comparison);
// Compares in this process and without a limit. Never throws but for want of memory.
[[nodiscard]] MathOutcome compare_with(const std::optional<MathAnswer>& gold, const MathComparison& comparison);
[[nodiscard]] MathOutcome compare_here(const MathComparison& comparison);

}  // namespace hone
