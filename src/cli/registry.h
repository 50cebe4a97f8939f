// The commands. Each folder src/cli/NAME holds a NAME.cpp that defines `void register_NAME(CommandRegistry&)`.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace hone {

class CommandRegistry {
 public:
  void add(Command command);
  [[nodiscard]] const Command* find(std::string_view name) const;  // nullptr where there is none
  [[nodiscard]] std::span<const Command> commands() const { return commands_; }

 private:
  std::vector<Command> commands_;
};
using RegistryOf_cli = CommandRegistry;

void register_all_cli(CommandRegistry& registry);

// Runs one command line, without the program's name: dispatches, prints help, and turns exceptions into a line on
// standard error. Returns the exit code: 0 done, 1 the user can mend it, 2 a defect in hone, 130 interrupted.
int run_command_line(const CommandRegistry& registry, std::span<const std::string> arguments);

// `hone --help`.
[[nodiscard]] std::string program_help(const CommandRegistry& registry);

}  // namespace hone
