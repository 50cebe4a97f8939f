// Tests of the letters that completions choose. tasks_test.cpp compares them with lighteval's.
#include "eval/gpqa/letters.h"

#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace hone {
namespace {

std::string repeated(std::string_view text, std::size_t bytes) {
  std::string all;
  while (all.size() < bytes) all += text;
  return all;
}

using Code = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;

Code compiled(const std::string& pattern, std::uint32_t options) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | options, &error,
                          &offset, nullptr),
            pcre2_code_free);
  if (!code) throw std::runtime_error(pattern);
  return code;
}

// Counts the items of a pattern that PCRE2 tries until it has found all matches in `text`.
std::uint64_t steps_of(const std::string& pattern, const std::string& text) {
  const Code code = compiled(pattern, PCRE2_AUTO_CALLOUT);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  std::uint64_t steps = 0;
  const auto count = [](pcre2_callout_block*, void* counter) {
    ++*static_cast<std::uint64_t*>(counter);
    return 0;
  };
  pcre2_set_callout(context.get(), count, &steps);
  PCRE2_SIZE at = 0;
  while (pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NO_UTF_CHECK,
                     match.get(), context.get()) > 0) {
    at = pcre2_get_ovector_pointer(match.get())[1];
  }
  return steps;
}

TEST(Letters, HostileTextsTakeFewSteps) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  constexpr std::size_t kCountedBytes = std::size_t{1} << 15;
  constexpr std::size_t kMostStepsPerByte = 40;
  for (const char* part : {"answer",
                           "Answer",
                           "answer:",
                           "answer: ",
                           "answer ",
                           "final answer",
                           "final answer ",
                           "final answer is",
                           "final answer is: ",
                           "final answer is is ",
                           " ",
                           "  is",
                           "\n",
                           "**",
                           " **",
                           "a",
                           "A",
                           "A ",
                           " A",
                           " **A*",
                           "An",
                           "answer A*",
                           "answer: B ",
                           "answer B ",
                           "I hope",
                           "\xC3\xA9",
                           "final answer is A. I hop"}) {
    const std::string counted = repeated(part, kCountedBytes);
    for (const std::string& pattern : letter_patterns()) {
      EXPECT_LE(steps_of(pattern, counted), kMostStepsPerByte * counted.size()) << pattern << " on '" << part << "'";
    }
    (void)chosen_letter(repeated(part, kBytes));  // throws if it exceeds the limits
  }
}

// PCRE2 can look for the first character of a match before it tries to match. If it is a letter in any case, the search
// for the case that a text lacks runs to the end of the text, for each match.
TEST(Letters, MatchesBeginWithNoSingleLetter) {
  for (const std::string& pattern : letter_patterns()) {
    std::uint32_t kind = 0;
    const Code code = compiled(pattern, 0);
    ASSERT_EQ(pcre2_pattern_info(code.get(), PCRE2_INFO_FIRSTCODETYPE, &kind), 0);
    EXPECT_NE(kind, 1u) << pattern;
  }
}

// A run of white space is read once, not once for each character that the pattern may skip before it.
TEST(Letters, LongRunsOfSpacesAreReadOnce) {
  const std::string spaces(std::size_t{1} << 20, ' ');
  for (const std::string& text : {"final answer" + spaces, "final answer is" + spaces, "answer" + spaces}) {
    for (std::size_t i = 0; i < 4; ++i) EXPECT_LE(steps_of(letter_patterns()[i], text), 600u) << i;
    EXPECT_EQ(chosen_letter(text), std::nullopt);
  }
  EXPECT_EQ(chosen_letter("final answer" + spaces + "is" + spaces + "C"), 'C');
}

TEST(Letters, AnyCaseIsPythons) {
  EXPECT_EQ(chosen_letter("FINAL ANSWER IS B. x A"), 'B');
  EXPECT_EQ(chosen_letter("f\u0130nal answer \u0131\u017F B. x A"), 'B');
  EXPECT_EQ(chosen_letter("an\u017Fwer B. A"), 'B');
  EXPECT_EQ(chosen_letter("anzwer B. A"), 'A');
}

TEST(Letters, InvalidBytesAreCharacters) {
  EXPECT_EQ(chosen_letter("\xFF answer\xFF: B"), 'B');
  EXPECT_EQ(chosen_letter("answer: " + repeated("\xFF", 49) + " D"), 'D');
  EXPECT_EQ(chosen_letter(""), std::nullopt);
}

}  // namespace
}  // namespace hone
