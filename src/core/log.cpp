#include "core/log.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/job_log.h"
#include "core/strings.h"

namespace hone {
namespace {

// Escapes a message and indents all lines but the first, so that quoted text cannot look like a separate message.
std::string as_one_message(std::string_view message) {
  std::string text = printable(message);
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
    text.insert(at + 1, "  ");
  return text;
}

// Serializes all output to standard error, so that lines of different threads never mix, and keeps the status line
// below the messages.
class Console {
 public:
  static Console& instance() {
    static Console console;
    return console;
  }

  void print(std::string_view prefix, std::string_view message) {
    const std::scoped_lock lock(mutex_);
    if (!silent_) write(prefix, message);
  }

  void print_error(std::string_view line) {
    const std::scoped_lock lock(mutex_);
    write("", line);
  }

  void print_unless_quiet(std::string_view message, bool once) {
    const std::scoped_lock lock(mutex_);
    if (quiet_ || silent_ || (once && !said_.emplace(message).second)) return;
    write("hone: ", as_one_message(message));
  }

  void set_status(std::string_view line) {
    const std::scoped_lock lock(mutex_);
    if (silent_ || (status_.empty() && line.empty())) return;
    status_ = line;
    put(std::string(kClear) + status_);
  }

  bool set_quiet(bool quiet) {
    const std::scoped_lock lock(mutex_);
    return std::exchange(quiet_, quiet);
  }

  void set_silent(bool silent) {
    const std::scoped_lock lock(mutex_);
    silent_ = silent;
  }

 private:
  static constexpr std::string_view kClear = "\r\033[K";  // return to the start of the line and erase it

  void write(std::string_view prefix, std::string_view message) {
    std::string text(status_.empty() ? std::string_view() : kClear);
    text.append(prefix).append(message).push_back('\n');
    put(text + status_);
  }

  static void put(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }

  std::mutex mutex_;
  std::set<std::string, std::less<>> said_;
  std::string status_;
  bool quiet_ = false;
  bool silent_ = false;
};

}  // namespace

void log_info(std::string_view message) { Console::instance().print_unless_quiet(message, false); }
void log_once(std::string_view message) { Console::instance().print_unless_quiet(message, true); }
void log_warning(std::string_view message) { Console::instance().print("hone: warning: ", as_one_message(message)); }
void log_line(std::string_view line) { Console::instance().print("", line); }
void log_error(std::string_view line) { Console::instance().print_error(line); }
bool set_quiet(bool quiet) { return Console::instance().set_quiet(quiet); }
void set_silent(bool silent) { Console::instance().set_silent(silent); }
void set_status_line(std::string_view line) { Console::instance().set_status(line); }

}  // namespace hone
