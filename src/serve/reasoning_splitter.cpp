#include "serve/reasoning_splitter.h"

#include <algorithm>
#include <utility>

namespace hone {
namespace {

constexpr std::string_view kThinkStart = "<think>";
constexpr std::string_view kThinkEnd = "</think>";

// Returns how many bytes at the end of the text may be the beginning of the closing tag.
std::size_t begun_closing(std::string_view text) {
  for (std::size_t length = std::min(text.size(), kThinkEnd.size() - 1); length > 0; --length)
    if (text.ends_with(kThinkEnd.substr(0, length))) return length;
  return 0;
}

}  // namespace

ReasoningSplitter::Part ReasoningSplitter::add(std::string_view text) {
  Part part;
  if (state_ == State::kContent) {
    part.content = text;
    return part;
  }
  held_ += text;
  if (state_ == State::kStart) {
    const std::size_t first = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
    const std::string_view begin = std::string_view(held_).substr(first, kThinkStart.size());
    if (!kThinkStart.starts_with(begin)) {
      state_ = State::kContent;
      part.content = std::exchange(held_, {});
      return part;
    }
    if (begin.size() < kThinkStart.size()) return part;
    held_.erase(0, first + kThinkStart.size());
    state_ = State::kReasoning;
  }
  const std::size_t closing = held_.find(kThinkEnd);
  if (closing == std::string::npos) {
    const std::size_t certain = held_.size() - begun_closing(held_);
    part.reasoning = held_.substr(0, certain);
    held_.erase(0, certain);
    return part;
  }
  part.reasoning = held_.substr(0, closing);
  part.content = held_.substr(closing + kThinkEnd.size());
  held_.clear();
  state_ = State::kContent;
  return part;
}

ReasoningSplitter::Part ReasoningSplitter::finish() {
  Part part;
  (state_ == State::kReasoning ? part.reasoning : part.content) = std::exchange(held_, {});
  return part;
}

}  // namespace hone
