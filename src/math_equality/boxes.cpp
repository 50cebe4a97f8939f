#include "math_equality/boxes.h"

#include <ranges>
#include <vector>

#include "core/characters.h"

namespace hone {
namespace {

// Returns true if the text contains a comma, a semicolon, or the word "and" or "or".
bool has_separator(std::string_view text) {
  if (text.find_first_of(",;") != std::string_view::npos) return true;
  const auto is_word = [](char c) { return is_letter(c) || is_digit(c) || c == '_'; };
  for (const std::string_view word : {std::string_view("and"), std::string_view("or")}) {
    for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
    }
  }
  return false;
}

// Returns true if a box belongs to the same answer as the box that follows it.
bool boxes_join(std::string_view between, std::string_view content, std::string_view next_content) {
  const std::size_t length = code_points(between);
  return length < 10 || (next_content != content && length < 70 && has_separator(between));
}

struct BoxCommand {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<BoxCommand> box_commands(std::string_view text) {
  std::vector<BoxCommand> commands;
  for (std::size_t at = text.find('\\'); at != std::string_view::npos; at = text.find('\\', at + 1)) {
    for (const std::string_view command : {std::string_view("\\boxed"), std::string_view("\\fbox")}) {
      if (text.substr(at).starts_with(command)) commands.push_back({at, at + command.size()});
    }
  }
  return commands;
}

}  // namespace

std::size_t closing_brace(std::string_view text, std::size_t open, std::size_t limit) {
  int depth = 0;
  for (std::size_t i = open; i < limit; ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

std::string boxed_content(std::string_view text, BoxRule rule) {
  std::vector<std::string_view> contents;  // from the last box to the first
  std::size_t limit = text.size();         // offset of the box that follows
  const std::vector<BoxCommand> commands = box_commands(text);
  for (const BoxCommand& command : commands | std::views::reverse) {
    const std::size_t open = skip_spaces(text, command.end);
    if (open >= limit) break;
    const std::size_t close = text[open] == '{' ? closing_brace(text, open, limit) : std::string_view::npos;
    if (close == std::string_view::npos) {  // no closing brace: the rest of the text, if this is the last box
      if (contents.empty()) contents.push_back(text.substr(open));
      break;
    }
    const std::string_view content = strip(text.substr(open + 1, close - open - 1));
    if (rule == BoxRule::kLast && !contents.empty() &&
        !boxes_join(text.substr(close + 1, limit - close - 1), content, contents.back())) {
      break;
    }
    if (contents.empty() || contents.back() != content) contents.push_back(content);
    limit = command.begin;
  }
  if (contents.empty()) return std::string(text);
  std::string joined(contents.back());
  for (std::size_t i = contents.size() - 1; i-- > 0;) joined.append(",").append(contents[i]);
  return joined;
}

}  // namespace hone
