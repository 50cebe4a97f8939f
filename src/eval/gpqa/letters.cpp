#include "eval/gpqa/letters.h"

#include <algorithm>
#include <cstddef>

#include "core/characters.h"

namespace hone {
namespace {

struct Found {
  std::size_t end = 0;
  char letter = 0;
};
using Match = std::optional<Found>;

std::size_t behind(std::string_view text, std::size_t at, std::string_view word) {
  return text.substr(std::min(at, text.size())).starts_with(word) ? at + word.size() : at;
}

bool word_at(std::string_view text, std::size_t at, std::string_view word) {
  if (at > text.size() || text.size() - at < word.size()) return false;
  return std::ranges::equal(text.substr(at, word.size()), word, [](char c, char w) { return lower(c) == w; });
}

bool is_choice(std::string_view text, std::size_t at) { return at < text.size() && text[at] >= 'A' && text[at] <= 'D'; }

Match plain_letter(std::string_view text, std::size_t at) {
  if (!is_choice(text, at)) return std::nullopt;
  return Found{at + 1, text[at]};
}

// Matches a letter and an optional "**", followed by punctuation, a space or the end of the text, which may be before a
// last newline.
Match letter_and_suffix(std::string_view text, std::size_t at) {
  if (!is_choice(text, at)) return std::nullopt;
  for (const std::size_t end : {behind(text, at + 1, "**"), at + 1}) {
    if (end == text.size() || (end + 1 == text.size() && text[end] == '\n')) return Found{end, text[at]};
    if (std::string_view(".,: ").find(text[end]) != std::string_view::npos) return Found{end + 1, text[at]};
  }
  return std::nullopt;
}

// Matches letter_and_suffix() after an optional "**".
Match starred(std::string_view text, std::size_t at) {
  if (Match match = letter_and_suffix(text, behind(text, at, "**"))) return match;
  return letter_and_suffix(text, at);
}

// Matches starred() after a space or at the beginning of the text.
Match letter_word(std::string_view text, std::size_t at) {
  if (at == 0) {
    if (Match match = starred(text, 0)) return match;
  }
  return at < text.size() && text[at] == ' ' ? starred(text, at + 1) : std::nullopt;
}

// Matches an optional colon, white space and a letter.
Match letter_behind_is(std::string_view text, std::size_t at) {
  return plain_letter(text, skip_spaces(text, behind(text, at, ":")));
}

Match final_answer_hoped(std::string_view text, std::size_t at) {
  if (!word_at(text, at, "final answer is")) return std::nullopt;
  Match match = letter_behind_is(text, at + 15);
  if (!match) return match;
  std::size_t end = behind(text, match->end, ".");
  end += white_space_length(text, end);
  if (!text.substr(std::min(end, text.size())).starts_with("I hope")) return std::nullopt;
  return Found{end + 6, match->letter};
}

Match final_answer_is(std::string_view text, std::size_t at) {
  if (!word_at(text, at, "final answer")) return std::nullopt;
  std::size_t place = at + 12;
  for (int skipped = 0; skipped <= 100 && place < text.size(); ++skipped) {
    const std::size_t is = skip_spaces(text, place);
    if (is > place && text.substr(is).starts_with("is")) {
      if (Match match = letter_behind_is(text, is + 2)) return match;
    }
    if (text[place] == '\n') break;
    place = next_code_point(text, place);
  }
  return std::nullopt;
}

// Returns the first letter that is a word, within 50 characters on the same line.
Match near(std::string_view text, std::size_t place) {
  for (int skipped = 0; skipped <= 50 && place < text.size(); ++skipped) {
    if (Match match = letter_word(text, place)) return match;
    if (text[place] == '\n') break;
    place = next_code_point(text, place);
  }
  return std::nullopt;
}

Match behind_answer_colon(std::string_view text, std::size_t at) {
  return word_at(text, at, "answer:") ? near(text, at + 7) : std::nullopt;
}

Match behind_answer(std::string_view text, std::size_t at) {
  return word_at(text, at, "answer") ? near(text, at + 6) : std::nullopt;
}

Match first_word(std::string_view text, std::size_t at) { return at == 0 ? starred(text, 0) : std::nullopt; }

// Searches for non-overlapping matches from the left and returns the letter of the last one.
std::optional<char> last_match(std::string_view text, Match (*match_at)(std::string_view, std::size_t)) {
  std::optional<char> letter;
  for (std::size_t at = 0; at < text.size();) {
    const Match match = match_at(text, at);
    if (match) letter = match->letter;
    at = match ? match->end : at + 1;
  }
  return letter;
}

}  // namespace

std::optional<char> chosen_letter(std::string_view text) {
  for (const auto pattern : {final_answer_hoped, final_answer_is, behind_answer_colon, behind_answer, first_word,
                             letter_word, plain_letter}) {
    if (const std::optional<char> letter = last_match(text, pattern)) return letter;
  }
  return std::nullopt;
}

}  // namespace hone
