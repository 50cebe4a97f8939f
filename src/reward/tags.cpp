#include "reward/tags.h"

#include "core/log.h"

namespace hone {

std::string_view without_thoughts(std::string_view text) {
  constexpr std::string_view kClosing = "</think>";
  const std::size_t place = text.rfind(kClosing);
  return place == std::string_view::npos ? text : text.substr(place + kClosing.size());
}

std::size_t count_occurrences(std::string_view text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

bool needs_think_opening(std::string_view completion, bool think_prefilled) {
  if (!think_prefilled) return false;
  log_once("the chat template opens <think> itself: format and tag_count count the tag as present");
  return !completion.starts_with(kThinkOpening);
}

}  // namespace hone
