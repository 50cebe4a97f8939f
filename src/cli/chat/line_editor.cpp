#include "cli/chat/line_editor.h"

#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/interrupt.h"
#include "core/terminal.h"
#include "core/unicode.h"

namespace hone {
namespace {

constexpr const char* kPastesMarked = "\x1b[?2004h";
constexpr const char* kPastesPlain = "\x1b[?2004l";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
constexpr wchar_t kReplacement = 0xFFFD;
constexpr int kPollMilliseconds = 50;
constexpr int kRemembered = 1000;  // messages

// Sets a UTF-8 locale if the environment names none. In the C locale libedit drops all characters except ASCII.
void choose_locale() {
  const char* chosen = std::setlocale(LC_CTYPE, "");
  if (chosen != nullptr && std::strcmp(::nl_langinfo(CODESET), "ANSI_X3.4-1968") != 0) return;
  for (const char* name : {"C.UTF-8", "C.utf8", "en_US.UTF-8"}) {
    if (std::setlocale(LC_CTYPE, name) != nullptr) return;
  }
}

std::string utf8_of(std::wstring_view text) {
  std::string bytes;
  for (const wchar_t character : text) append_utf8(bytes, static_cast<char32_t>(character));
  return bytes;
}

std::wstring wide_of(std::string_view text) {
  std::wstring characters;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    characters += static_cast<wchar_t>(point.value);
    at += point.size;
  }
  return characters;
}

// Converts pasted line breaks to \n, because terminals send \r, and removes those at the end.
void normalize_line_breaks(std::wstring& text) {
  for (std::size_t at = 0; (at = text.find(L'\r', at)) != std::wstring::npos; ++at) {
    text.replace(at, text.compare(at, 2, L"\r\n") == 0 ? 2 : 1, L"\n");
  }
  while (text.ends_with(L'\n')) text.pop_back();
}

void write_to_terminal(const char* text) {
  std::fputs(text, stdout);
  std::fflush(stdout);
}

}  // namespace

LineEditor::LineEditor(std::filesystem::path history_file)
    : history_file_(std::move(history_file)), edit_(nullptr), history_(history_winit()) {
  choose_locale();
  edit_ = el_init("hone", stdin, stdout, stderr);
  HistEventW event{};
  history_w(history_, &event, H_SETSIZE, kRemembered);
  if (!history_file_.empty()) history_w(history_, &event, H_LOAD, history_file_.c_str());
  el_wset(edit_, EL_CLIENTDATA, this);
  el_wset(edit_, EL_PROMPT, &LineEditor::prompt);
  el_wset(edit_, EL_EDITOR, L"emacs");
  el_wset(edit_, EL_HIST, history_w, history_);
  el_wset(edit_, EL_SIGNAL, 0);  // libedit's handlers would forward signals to the whole process group
  el_wset(edit_, EL_GETCFN, &LineEditor::read_character);
  el_wset(edit_, EL_ADDFN, L"hone-paste", L"Insert a paste", &LineEditor::on_paste);
  el_wset(edit_, EL_BIND, L"\\e[200~", L"hone-paste", nullptr);
}

LineEditor::~LineEditor() {
  history_wend(history_);
  el_end(edit_);
}

LineEditor& LineEditor::of(EditLine* edit) {
  void* editor = nullptr;
  el_wget(edit, EL_CLIENTDATA, &editor);
  return *static_cast<LineEditor*>(editor);
}

wchar_t* LineEditor::prompt(EditLine* edit) { return of(edit).prompt_.data(); }

// Reads one character; ends the line at Ctrl+C, after which libedit's own function would keep reading.
int LineEditor::read_character(EditLine* edit, wchar_t* character) {
  std::mbstate_t state{};
  while (!interrupted()) {
    // The wait has a timeout, because a signal that arrives just before it or on another thread does not interrupt it.
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&input, 1, kPollMilliseconds) <= 0) continue;
    char byte = 0;
    const ssize_t size = ::read(STDIN_FILENO, &byte, 1);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return static_cast<int>(size);
    const std::size_t length = std::mbrtowc(character, &byte, 1, &state);
    if (length == static_cast<std::size_t>(-2)) continue;  // incomplete character: read its next byte
    if (length == static_cast<std::size_t>(-1)) *character = kReplacement;
    return 1;
  }
  const LineInfoW* line = el_wline(edit);
  of(edit).was_empty_ = line->buffer == line->lastchar;
  return -1;
}

unsigned char LineEditor::on_paste(EditLine* edit, int) {
  std::wstring text;
  wchar_t character = 0;
  while (!text.ends_with(kPasteEnd)) {
    if (el_wgetc(edit, &character) != 1) return CC_EOF;
    if (character != 0) text += character;
  }
  text.resize(text.size() - kPasteEnd.size());
  normalize_line_breaks(text);
  if (!text.empty() && el_winsertstr(edit, text.c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

TypedLine LineEditor::read(const wchar_t* prompt) {
  prompt_ = prompt;
  el_resize(edit_);
  // Prepares the terminal before the prompt appears, so that keys typed right after it are handled. libedit itself
  // would do so after printing the prompt.
  el_wset(edit_, EL_PREP_TERM, 1);
  const bool marks = is_terminal(OutputStream::kStandardOutput);
  if (marks) write_to_terminal(kPastesMarked);
  int count = 0;
  const wchar_t* line = el_wgets(edit_, &count);
  if (marks) write_to_terminal(kPastesPlain);
  if (interrupted()) return {.kind = TypedLine::Kind::kInterrupt, .text = {}, .was_empty = was_empty_};
  if (line == nullptr || count <= 0) return {};
  std::wstring_view typed(line, static_cast<std::size_t>(count));
  while (typed.ends_with(L'\n')) typed.remove_suffix(1);
  return {.kind = TypedLine::Kind::kText, .text = utf8_of(typed)};
}

void LineEditor::remember(const std::string& message) {
  HistEventW event{};
  history_w(history_, &event, H_ENTER, wide_of(message).c_str());
  if (history_file_.empty()) return;
  // Written after each message, because a chat may end by a signal. libedit makes the file readable by its owner only.
  std::error_code ignored;
  std::filesystem::create_directories(history_file_.parent_path(), ignored);
  history_w(history_, &event, H_SAVE, history_file_.c_str());
}

}  // namespace hone
