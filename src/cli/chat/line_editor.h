// Reads lines from a user at a terminal, with editing, history and multi-line paste, on top of libedit.
#pragma once

#include <histedit.h>

#include <filesystem>
#include <string>

namespace hone {

struct TypedLine {
  enum class Kind { kText, kInterrupt, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;        // UTF-8; a pasted text may contain line breaks
  bool was_empty = false;  // with Kind::kInterrupt: the line was empty when Ctrl+C was pressed
};

// A line editor on standard input and output. Characters are decoded in the locale of the environment, or in C.UTF-8 if
// the environment names no locale or one that is not installed. Ctrl+C ends the line; the caller must have called
// catch_interrupts() (core/interrupt.h). A pasted text is inserted unchanged and sent with Enter: the editor enables
// bracketed paste, in which the terminal marks the begin and the end of a paste
// (https://invisible-island.net/xterm/xterm-paste64.html).
class LineEditor {
 public:
  // `history_file`: the messages of earlier chats, to which those of this one are added; empty: none. A file that
  // cannot be read or written is no error.
  explicit LineEditor(std::filesystem::path history_file = {});
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  // Waits for a line. Returns Kind::kInterrupt if interrupted(), and Kind::kEnd after Ctrl+D on an empty line or when
  // the terminal is closed.
  [[nodiscard]] TypedLine read(const wchar_t* prompt);
  // Adds a message to the history that the arrow keys recall.
  void remember(const std::string& message);

 private:
  static LineEditor& of(EditLine* edit);
  static wchar_t* prompt(EditLine* edit);
  static int read_character(EditLine* edit, wchar_t* character);
  static unsigned char on_paste(EditLine* edit, int key);

  std::filesystem::path history_file_;
  EditLine* edit_;
  HistoryW* history_;
  std::wstring prompt_;
  bool was_empty_ = false;
};

}  // namespace hone
