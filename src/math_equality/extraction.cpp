#include "math_equality/extraction.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "core/characters.h"
#include "math_equality/delimiters.h"
#include "math_equality/plain_numbers.h"

namespace hone {
namespace {

// Returns true if the text contains `word` at `at`, ignoring case. `word` must be in lower case.
bool word_at(std::string_view text, std::size_t at, std::string_view word) {
  if (at > text.size() || text.size() - at < word.size()) return false;
  return std::ranges::equal(text.substr(at, word.size()), word, [](char c, char w) { return lower(c) == w; });
}

std::size_t find_word(std::string_view text, std::string_view word, std::size_t from) {
  for (std::size_t at = from; at + word.size() <= text.size(); ++at) {
    if (word_at(text, at, word)) return at;
  }
  return std::string_view::npos;
}

using Found = std::optional<AnswerMatch>;

class Finder {
 public:
  Finder(std::string_view text, const ExtractionRule& rule) : text_(text), rule_(rule), latex_(text) {}

  // Applies the patterns in the order of Math-Verify, which decides ties.
  std::vector<AnswerMatch> run() {
    const auto latex_at = [&](std::size_t at) { return latex_.match_after_spaces(at, false); };
    behind_final_answer(latex_at);
    behind_answer(100, "answer:", [&](std::size_t at) { return latex_near(at); });
    behind_answer(200, "answer", [&](std::size_t at) { return latex_near(at); });
    if (rule_.unanchored) anywhere(300, [&](std::size_t at) { return latex_.match_joined(at, false); });
    if (rule_.boxed_priority >= 0) {
      anywhere(rule_.boxed_priority, [&](std::size_t at) { return latex_.match_joined(at, true); });
      bare_box();
    }
    if (rule_.expressions) plain();
    std::ranges::stable_sort(found_, [](const AnswerMatch& a, const AnswerMatch& b) {
      return std::tuple(a.priority, b.end, a.begin) < std::tuple(b.priority, a.end, b.begin);
    });
    return std::move(found_);
  }

 private:
  // Stores a match with its priority and its range, including the anchor, and returns the end.
  std::size_t keep(AnswerMatch match, int priority, std::size_t begin, std::size_t end) {
    match.priority = priority;
    match.begin = begin;
    match.end = end;
    found_.push_back(std::move(match));
    return end;
  }

  // Stores all matches without an anchor.
  template <class Match>
  void anywhere(int priority, const Match& match_at) {
    for (std::size_t at = 0; at <= text_.size();) {
      Found found = match_at(at);
      if (!found) {
        ++at;
        continue;
      }
      const std::size_t end = std::max(found->end, at + 1);
      found->priority = priority;
      found_.push_back(std::move(*found));
      at = end;
    }
  }

  // Stores plain numbers and expressions.
  void plain() {
    const auto either_behind_spaces = [&](std::size_t at) { return expression_or_number_behind_spaces(at); };
    behind_final_answer(either_behind_spaces);
    behind_answer(100, "answer:", [&](std::size_t at) { return expression_near(at); });
    behind_answer(200, "answer", [&](std::size_t at) { return expression_near(at); });
    if (!rule_.unanchored) return;
    anywhere(300, [&](std::size_t at) { return match_expression(text_, at); });
    anywhere(300, [&](std::size_t at) { return match_number(text_, at); });
  }

  // Matches "final answer is:? X.? I hope", then "final answer" followed by up to 100 characters and " is:? X".
  template <class Match>
  void behind_final_answer(const Match& match_at) {
    constexpr std::string_view kFinal = "final answer";
    for (std::size_t at = find_word(text_, "final answer is", 0); at != std::string_view::npos;) {
      Found found = match_at(behind_colon(at + 15));
      std::size_t next = at + 1;
      if (found) {
        const std::size_t end = behind_hope(found->end);
        if (end != std::string_view::npos) next = keep(std::move(*found), 0, at, end);
      }
      at = find_word(text_, "final answer is", next);
    }
    for (std::size_t at = find_word(text_, kFinal, 0); at != std::string_view::npos;) {
      Found found;
      std::size_t place = at + kFinal.size();
      for (int skipped = 0; skipped <= 100 && place < text_.size() && !found; ++skipped) {
        const std::size_t is = latex_.behind_spaces(place);
        if (is > place && text_.substr(is).starts_with("is")) found = match_at(behind_colon(is + 2));
        place = next_code_point(text_, place);
      }
      const std::size_t next = found ? found->end : at + 1;
      if (found) keep(std::move(*found), 50, at, next);
      at = find_word(text_, kFinal, next);
    }
  }

  template <class Match>
  void behind_answer(int priority, std::string_view anchor, const Match& match_near) {
    for (std::size_t at = find_word(text_, anchor, 0); at != std::string_view::npos;) {
      Found found = match_near(at + anchor.size());
      const std::size_t next = found ? found->end : at + 1;
      if (found) keep(std::move(*found), priority, at, next);
      at = find_word(text_, anchor, next);
    }
  }

  // Returns the first LaTeX that begins within 50 characters.
  [[nodiscard]] Found latex_near(std::size_t place) const {
    for (int skipped = 0; skipped <= 50 && place <= text_.size(); ++skipped) {
      if (Found found = latex_.match_joined(place, false)) return found;
      place = next_code_point(text_, place);
    }
    return std::nullopt;
  }

  // Searches the rest of the line: the number or expression after the last "=" within 100 characters, otherwise the
  // first one that begins within 50 characters. No "=" may follow it.
  [[nodiscard]] Found expression_near(std::size_t from) const {
    std::vector<std::size_t> places;  // code points
    for (std::size_t at = from; at <= text_.size() && places.size() <= 100; at = next_code_point(text_, at)) {
      places.push_back(at);
      if (at == text_.size() || text_[at] == '\n') break;
    }
    for (std::size_t i = places.size(); i-- > 0;) {
      if (places[i] >= text_.size() || text_[places[i]] != '=') continue;
      if (Found found = not_before_equals(expression_or_number_behind_spaces(places[i] + 1))) return found;
    }
    for (std::size_t i = 0; i < places.size() && i <= 50; ++i) {
      if (Found found = not_before_equals(expression_or_number(places[i]))) return found;
    }
    return std::nullopt;
  }

  [[nodiscard]] Found not_before_equals(Found found) const {
    if (found && text_.substr(latex_.behind_spaces(found->end)).starts_with('=')) found.reset();
    return found;
  }

  [[nodiscard]] Found expression_or_number(std::size_t at) const {
    if (Found found = match_expression(text_, at)) return found;
    return match_number(text_, at);
  }

  // Matches after optional white space. The match of a number includes the last white space.
  [[nodiscard]] Found expression_or_number_behind_spaces(std::size_t at) const {
    const std::size_t end = latex_.behind_spaces(at);
    if (Found found = expression_or_number(end)) return found;
    if (end == at) return std::nullopt;
    std::size_t space = end - 1;
    while (space > at && white_space_length(text_, space) != end - space) --space;
    return expression_or_number(space);
  }

  [[nodiscard]] std::size_t behind_colon(std::size_t at) const {
    return at < text_.size() && text_[at] == ':' ? at + 1 : at;
  }

  // Returns the offset after ".? I hope"; npos if it does not follow.
  [[nodiscard]] std::size_t behind_hope(std::size_t at) const {
    if (at < text_.size() && text_[at] == '.') ++at;
    at += white_space_length(text_, at);
    return text_.substr(std::min(at, text_.size())).starts_with("I hope") ? at + 6 : std::string_view::npos;
  }

  // Stores the text from the first "\boxed{" to the last "}".
  void bare_box() {
    const std::size_t begin = text_.find("\\boxed{");
    const std::size_t end = text_.rfind('}');
    if (begin == std::string_view::npos || end == std::string_view::npos || end < begin + 8) return;
    AnswerMatch match;
    match.kind = AnswerMatch::Kind::kBareBox;
    match.pieces.push_back({text_.substr(begin, end + 1 - begin), false});
    keep(std::move(match), rule_.boxed_priority, begin, end + 1);
  }

  std::string_view text_;
  ExtractionRule rule_;
  LatexDelimiters latex_;
  std::vector<AnswerMatch> found_;
};

}  // namespace

std::vector<AnswerMatch> find_answers(std::string_view text, const ExtractionRule& rule) {
  return Finder(text, rule).run();
}

}  // namespace hone
