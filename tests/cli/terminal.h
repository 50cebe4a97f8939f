// The program at a terminal: what a person types and sees.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace hone::test {

class TerminalProgram {
 public:
  // Starts it on a pseudo-terminal of 100 columns, with `variables` in place of LANG and all LC_* of the environment.
  explicit TerminalProgram(const std::vector<std::string>& arguments,
                           const std::map<std::string, std::string>& variables = {});
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;
  ~TerminalProgram();  // ends it

  void type(const std::string& keys) const;
  // Waits until `text` has been written after what an earlier call found; false where the program ends without.
  [[nodiscard]] bool sees(const std::string& text);
  // Waits until anything more has been written.
  [[nodiscard]] bool sees_more();
  // Waits for its end; the exit code, or 128 + the signal's number.
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
