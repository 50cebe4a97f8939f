#include "reward/tags.h"

#include "core/log.h"

namespace hone {

std::string_view without_thoughts(std::string_view text) {
  constexpr std::string_view kClosing = "</think>";
  const std::size_t place = text.rfind(kClosing);
  return place == std::string_view::npos ? text : text.substr(place + kClosing.size());
}

std::string_view outside_thoughts(std::string_view text, bool opened) {
  const std::string_view behind = without_thoughts(text);
  if (opened && behind.size() == text.size()) return {};
  return behind.substr(0, behind.find("<think>"));
}

std::size_t count_occurrences(std::string_view text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

bool needs_think_opening(std::string_view completion, bool think_prefilled) {
  if (!think_prefilled) return false;
  log_once("the chat template adds <think> to the prompt: format and tag_count count the tag as present");
  return !completion.starts_with(kThinkOpening);
}

std::size_t answer_start(std::string_view text, bool opened) {
  constexpr std::string_view kMiddle = "\n</think>\n<answer>\n";
  if (!opened && !text.starts_with(kThinkOpening)) return std::string_view::npos;
  // The first occurrence is enough: every "\n</answer>" after a later occurrence is also after the first one.
  const std::size_t middle = text.find(kMiddle, opened ? 0 : kThinkOpening.size());
  return middle == std::string_view::npos ? middle : middle + kMiddle.size();
}

bool answer_ends(std::string_view text, std::size_t from) {
  constexpr std::string_view kEnd = "\n</answer>";
  for (std::size_t end = text.find(kEnd, from); end != std::string_view::npos; end = text.find(kEnd, end + 1)) {
    const std::size_t after = end + kEnd.size();
    if (after == text.size() || text[after] == '\n') return true;
  }
  return false;
}

}  // namespace hone
