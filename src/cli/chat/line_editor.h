// Lines from a person at a terminal, with editing and history.
#pragma once

#include <histedit.h>

#include <string>

namespace hone {

struct TypedLine {
  enum class Kind { text, interrupt, end };
  Kind kind = Kind::end;
  std::string text;        // UTF-8; with line breaks where it was pasted with them
  bool was_empty = false;  // of an interrupt: nothing had been typed
};

// Characters are read and shown by the locale of the environment; where that names none, or one that the system has
// not, by C.UTF-8. Ctrl+C, which must be caught (core/interrupt.h), ends the line. A paste is inserted as it is and
// sent with Enter (terminals mark pastes where they are asked to:
// https://invisible-island.net/xterm/xterm-paste64.html).
class LineEditor {
 public:
  LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  // Waits for a line; `interrupt` where interrupted(), `end` after Ctrl+D on an empty one or where the terminal is
  // gone.
  [[nodiscard]] TypedLine read(const wchar_t* prompt);
  // What the arrow keys bring back.
  void remember(const std::string& message);

 private:
  static LineEditor& of(EditLine* edit);
  static wchar_t* prompt(EditLine* edit);
  static int read_character(EditLine* edit, wchar_t* character);
  static unsigned char on_paste(EditLine* edit, int key);

  EditLine* edit_;
  HistoryW* history_;
  std::wstring prompt_;
  bool was_empty_ = false;
};

}  // namespace hone
