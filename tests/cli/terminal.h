// Runs the program on a pseudo-terminal, to test what a user types and sees.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace hone::test {

class TerminalProgram {
 public:
  // Starts the program on a terminal of 100 columns. Unsets LANG, LANGUAGE, LC_ALL and LC_CTYPE, then sets `variables`.
  explicit TerminalProgram(const std::vector<std::string>& arguments,
                           const std::map<std::string, std::string>& variables = {});
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;
  ~TerminalProgram();  // kills the program if it is still running

  void type(const std::string& keys) const;
  // Waits until the program writes `text` after the position that the previous call found. Returns false if the program
  // ends first.
  [[nodiscard]] bool sees(const std::string& text);
  // Waits until the program writes anything more.
  [[nodiscard]] bool sees_more();
  // Waits for the end of the program and returns its exit code, or 128 + the number of the signal that ended it.
  [[nodiscard]] int wait();
  void signal(int number) const;
  [[nodiscard]] const std::string& output() const { return output_; }

 private:
  bool read_more();

  pid_t child_ = -1;
  int terminal_ = -1;
  std::string output_;
  std::size_t seen_ = 0;
};

}  // namespace hone::test
