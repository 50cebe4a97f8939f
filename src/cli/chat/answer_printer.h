// Prints an answer while it is generated.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "cli/chat/answerer.h"

namespace hone {

// Writes to standard output and flushes it.
void print_answer(std::string_view text);

enum class ThoughtStyle : std::uint8_t {
  kPlain,   // all text unchanged, for pipes
  kDimmed,  // thoughts are dimmed
  kFolded,  // a line that counts what the model thinks is shown in place of thoughts
};

// Separates the thoughts of an answer, between <think> and </think> or as the server has separated them, from its text.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(ThoughtStyle style) : style_(style) {}
  AnswerPrinter(const AnswerPrinter&) = delete;
  AnswerPrinter& operator=(const AnswerPrinter&) = delete;

  void add(const AnswerPiece& piece);
  // Ends the answer: shows what was held back, and leaves the style of thoughts.
  void finish();
  // All thoughts so far, without their tags.
  [[nodiscard]] const std::string& thoughts() const { return thoughts_; }

 private:
  using Clock = std::chrono::steady_clock;

  void add_tagged(std::string_view text);
  void print_thought(std::string_view text);
  void print_text(std::string_view text);
  void show_fold(bool over);

  ThoughtStyle style_;
  std::string held_;      // may be the beginning of a tag
  bool in_tags_ = false;  // between <think> and </think>
  bool is_thinking_ = false;
  bool trims_ = false;  // white space after folded thoughts is left out
  std::string thoughts_;
  Clock::time_point began_{};
  Clock::time_point shown_{};  // when the line was last written
};

}  // namespace hone
