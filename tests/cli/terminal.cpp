#include "cli/terminal.h"

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "support/paths.h"

namespace hone::test {

TerminalProgram::TerminalProgram(const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& variables) {
  const std::string program = (binary_dir() / "hone").string();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const winsize size{.ws_row = 40, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
  if (child_ < 0) throw std::runtime_error("no pseudo-terminal");
  if (child_ > 0) return;
  for (const char* name : {"LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE"}) ::unsetenv(name);
  ::setenv("TERM", "xterm", 1);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  ::execv(program.c_str(), argv.data());
  ::_exit(127);
}

TerminalProgram::~TerminalProgram() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  ::close(terminal_);
}

void TerminalProgram::type(const std::string& keys) const {
  if (::write(terminal_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) {
    throw std::runtime_error("the terminal takes no keys");
  }
}

// Reads more output. Returns false at the end of the output, which a pseudo-terminal reports as EIO.
bool TerminalProgram::read_more() {
  std::array<char, 4096> buffer{};
  ssize_t size = 0;
  do size = ::read(terminal_, buffer.data(), buffer.size());
  while (size < 0 && errno == EINTR);
  if (size <= 0) return false;
  output_.append(buffer.data(), static_cast<std::size_t>(size));
  return true;
}

bool TerminalProgram::sees(const std::string& text) {
  std::size_t at = 0;
  while ((at = output_.find(text, seen_)) == std::string::npos) {
    if (!read_more()) return false;
  }
  seen_ = at + text.size();
  return true;
}

bool TerminalProgram::sees_more() {
  while (output_.size() == seen_) {
    if (!read_more()) return false;
  }
  return true;
}

int TerminalProgram::wait() {
  while (read_more()) continue;
  int status = 0;
  ::waitpid(child_, &status, 0);
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void TerminalProgram::signal(int number) const { ::kill(child_, number); }

}  // namespace hone::test
