#include "cli/chat/answer_printer.h"

#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kNormal = "\x1b[0m";
constexpr std::string_view kClearLine = "\r\x1b[2K";
constexpr std::string_view kBegin = "<think>";
constexpr std::string_view kEnd = "</think>";
constexpr std::chrono::milliseconds kFoldPause{200};

// Returns the number of bytes at the end of a text that are the beginning of a tag.
std::size_t begun_tag(std::string_view text, std::string_view tag) {
  for (std::size_t length = std::min(text.size(), tag.size() - 1); length > 0; --length)
    if (text.ends_with(tag.substr(0, length))) return length;
  return 0;
}

}  // namespace

void print_answer(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void AnswerPrinter::add(const AnswerPiece& piece) {
  if (style_ == ThoughtStyle::kPlain) {
    if (!piece.is_thought) print_answer(piece.text);
    if (piece.is_thought) thoughts_ += piece.text;
    return;
  }
  if (piece.is_thought)
    print_thought(piece.text);
  else
    add_tagged(piece.text);
}

void AnswerPrinter::add_tagged(std::string_view text) {
  held_ += text;
  for (;;) {
    const std::string_view tag = in_tags_ ? kEnd : kBegin;
    const std::size_t found = held_.find(tag);
    const std::size_t certain = found != std::string::npos ? found : held_.size() - begun_tag(held_, tag);
    const std::string part = held_.substr(0, certain);
    held_.erase(0, certain);
    if (in_tags_)
      print_thought(part);
    else
      print_text(part);
    if (found == std::string::npos) return;
    held_.erase(0, tag.size());
    in_tags_ = !in_tags_;
  }
}

void AnswerPrinter::print_thought(std::string_view text) {
  if (text.empty()) return;
  if (!is_thinking_) {
    is_thinking_ = true;
    if (thoughts_.empty()) began_ = Clock::now();
    if (style_ == ThoughtStyle::kDimmed) print_answer(kDim);
  }
  thoughts_ += text;
  if (style_ == ThoughtStyle::kDimmed) return print_answer(printable(text));
  if (Clock::now() >= shown_ + kFoldPause) show_fold(false);
}

void AnswerPrinter::print_text(std::string_view text) {
  if (text.empty()) return;
  if (is_thinking_) {
    is_thinking_ = false;
    if (style_ == ThoughtStyle::kDimmed) print_answer(text_of(kNormal, thoughts_.ends_with('\n') ? "" : "\n"));
    if (style_ == ThoughtStyle::kFolded) show_fold(true);
    trims_ = true;
  }
  if (trims_) {
    text.remove_prefix(std::min(text.find_first_not_of(" \r\n\t"), text.size()));
    trims_ = text.empty();
  }
  print_answer(printable(text));
}

// A line with the time and the length of the thoughts. While the model thinks, the next one is written over it.
void AnswerPrinter::show_fold(bool over) {
  shown_ = Clock::now();
  const double seconds = std::chrono::duration<double>(shown_ - began_).count();
  const auto count = static_cast<std::int64_t>(
      std::ranges::count_if(thoughts_, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
  print_answer(text_of(kClearLine, kDim, over ? "(thought for " : "(thinking for ", format_duration(seconds), ", ",
                       format_count(count), " characters", over ? "; /thoughts shows them)" : " ...)", kNormal,
                       over ? "\n" : ""));
}

void AnswerPrinter::finish() {
  const std::string rest = std::exchange(held_, {});
  if (!rest.empty() && in_tags_)
    print_thought(rest);
  else
    print_text(rest);
  if (!is_thinking_) return;
  is_thinking_ = false;
  if (style_ == ThoughtStyle::kDimmed) print_answer(kNormal);
  if (style_ == ThoughtStyle::kFolded) show_fold(true);
}

}  // namespace hone
