#include "math_equality/delimiters.h"

#include <algorithm>
#include <utility>

#include "core/characters.h"

namespace hone {
namespace {

constexpr std::size_t kMostPieces = 6;

std::size_t first_from(const std::vector<std::size_t>& places, std::size_t at) {
  const auto place = std::ranges::lower_bound(places, at);
  return place == places.end() ? std::string_view::npos : *place;
}

// Returns the offset after "%", "\%", "percent" or "pct" at `at`; `at` if there is none.
std::size_t behind_percent(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(std::min(at, text.size()));
  for (const std::string_view sign : {"%", "\\%", "percent", "Percent", "pct", "Pct"}) {
    if (rest.starts_with(sign)) return at + sign.size();
  }
  return at;
}

// Returns the offset after ",and", "and", ",or", "or" or "," at `at`; npos if there is none.
std::size_t behind_joint(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(std::min(at, text.size()));
  for (const std::string_view joint : {",and", "and", ",or", "or", ","}) {
    if (rest.starts_with(joint)) return at + joint.size();
  }
  return std::string_view::npos;
}

// Returns the offset after "-?\d+([.,]\d+)?" in braces at `at`; npos if the text there does not match.
std::size_t behind_braced_number(std::string_view text, std::size_t at) {
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at > begin;
  };
  if (at >= text.size() || text[at] != '{') return std::string_view::npos;
  ++at;
  if (at < text.size() && text[at] == '-') ++at;
  if (!digits()) return std::string_view::npos;
  if (at < text.size() && (text[at] == '.' || text[at] == ',')) {
    ++at;
    if (!digits()) return std::string_view::npos;
  }
  return at < text.size() && text[at] == '}' ? at + 1 : std::string_view::npos;
}

}  // namespace

LatexDelimiters::LatexDelimiters(std::string_view text) : text_(text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::string_view rest = text.substr(i);
    if (c == '$' && (i == 0 || text[i - 1] != '\\')) dollars_.push_back(i);
    if (c == '$' && rest.starts_with("$$")) double_dollars_.push_back(i);
    if (c == '\n') newlines_.push_back(i);
    if (c == '}') braces_.push_back(i);
    if (c != '\\') continue;
    if (rest.starts_with("\\]")) brackets_.push_back(i);
    if (rest.starts_with("\\)")) parentheses_.push_back(i);
    if (rest.starts_with("\\boxed{")) boxes_.push_back(i);
  }
}

std::size_t LatexDelimiters::behind_spaces(std::size_t at) const {
  if (at >= run_begin_ && at < run_end_) return run_end_;
  const std::size_t end = skip_spaces(text_, at);
  run_begin_ = at;
  run_end_ = end;
  return end;
}

// Matches content between delimiters. It must not be empty and ends at the first closing delimiter, which must not
// follow a backslash. Inline LaTeX must not contain a newline.
std::optional<LatexDelimiters::Content> LatexDelimiters::delimited(std::size_t at) const {
  const std::string_view rest = text_.substr(at);
  const auto until = [&](const std::vector<std::size_t>& closings, std::size_t open, std::size_t close,
                         bool one_line) -> std::optional<Content> {
    const std::size_t begin = at + open;
    const std::size_t end = first_from(closings, begin);
    if (end == std::string_view::npos || end == begin || text_[end - 1] == '\\') return std::nullopt;
    if (one_line && first_from(newlines_, begin) < end) return std::nullopt;
    return Content{begin, end, end + close};
  };
  const bool escaped = at > 0 && text_[at - 1] == '\\';
  if (rest.starts_with("$$")) return escaped ? std::nullopt : until(double_dollars_, 2, 2, false);
  if (rest.starts_with("\\[")) return escaped ? std::nullopt : until(brackets_, 2, 2, false);
  if (rest.starts_with("\\(")) return escaped ? std::nullopt : until(parentheses_, 2, 2, true);
  if (rest.starts_with("$")) {
    return escaped || (at > 0 && is_digit(text_[at - 1])) ? std::nullopt : until(dollars_, 1, 1, true);
  }
  const std::size_t space = white_space_length(text_, at);
  if (space == 0 || !rest.substr(space).starts_with("[")) return std::nullopt;
  const std::size_t begin = at + space + 1;
  const std::size_t end = text_.find_first_of("[]\n", begin);
  if (end == std::string_view::npos || end == begin || text_[end] != ']') return std::nullopt;
  const std::size_t behind = white_space_length(text_, end + 1);
  if (behind == 0) return std::nullopt;
  return Content{begin, end, end + 1 + behind};
}

std::optional<LatexDelimiters::Content> LatexDelimiters::bare_fraction(std::size_t at) const {
  const std::size_t command = at + (text_[at] == '-' ? 1 : 0);
  if (!text_.substr(command).starts_with("\\frac")) return std::nullopt;
  const std::size_t middle = behind_braced_number(text_, command + 5);
  const std::size_t end =
      middle == std::string_view::npos ? std::string_view::npos : behind_braced_number(text_, middle);
  if (end == std::string_view::npos) return std::nullopt;
  return Content{at, end, end};
}

bool LatexDelimiters::holds_box(const Content& content) const {
  constexpr std::size_t kShortest = 8;  // "\boxed{" and one character
  const std::size_t box = first_from(boxes_, content.begin);
  if (box == std::string_view::npos || box + kShortest > content.end) return false;
  return first_from(braces_, box + kShortest) < content.end;
}

std::optional<LatexStretch> LatexDelimiters::match(std::size_t at, bool boxed) const {
  if (at >= text_.size()) return std::nullopt;
  std::optional<Content> content = delimited(at);
  if (boxed && content && !holds_box(*content)) content.reset();
  if (!boxed && !content) content = bare_fraction(at);
  if (!content) return std::nullopt;
  LatexStretch stretch;
  const std::size_t behind = behind_spaces(content->behind);
  stretch.end = behind_percent(text_, behind);
  stretch.piece = {text_.substr(content->begin, content->end - content->begin), stretch.end > behind};
  return stretch;
}

std::optional<std::size_t> LatexDelimiters::begin_after_spaces(std::size_t at, bool boxed) const {
  const std::size_t begin = behind_spaces(at);
  if (match(begin, boxed)) return begin;
  if (begin == at || begin >= text_.size() || text_[begin] != '[') return std::nullopt;
  std::size_t space = begin - 1;
  while (space > at && white_space_length(text_, space) != begin - space) --space;
  return match(space, boxed) ? std::optional(space) : std::nullopt;
}

std::optional<AnswerMatch> LatexDelimiters::match_joined(std::size_t at, bool boxed) const {
  AnswerMatch found;
  found.begin = at;
  for (std::optional<std::size_t> next = at; next && found.pieces.size() < kMostPieces;) {
    const std::optional<LatexStretch> stretch = match(*next, boxed);
    if (!stretch) break;
    found.pieces.push_back(stretch->piece);
    found.end = boxed ? behind_spaces(stretch->end) : stretch->end;
    const std::size_t joint = behind_joint(text_, behind_spaces(found.end));
    next = joint == std::string_view::npos ? std::nullopt : begin_after_spaces(joint, boxed);
  }
  return found.pieces.empty() ? std::nullopt : std::optional(std::move(found));
}

std::optional<AnswerMatch> LatexDelimiters::match_after_spaces(std::size_t at, bool boxed) const {
  const std::optional<std::size_t> begin = begin_after_spaces(at, boxed);
  return begin ? match_joined(*begin, boxed) : std::nullopt;
}

}  // namespace hone
