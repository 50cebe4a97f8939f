#include "cli/registry.h"

#include <algorithm>
#include <cstdio>
#include <new>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/strings.h"

namespace hone {
namespace {

enum ExitCode : int { kDone = 0, kUserError = 1, kDefect = 2, kInterrupted = 130 };

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// One line whatever is in it.
void print_error(std::string_view kind, std::string_view message) {
  std::string line(message);
  std::ranges::replace(line, '\n', ' ');
  set_status_line("");
  log_line(text_of("hone: ", kind, line));
}

int dispatch(const CommandRegistry& registry, std::span<const std::string> arguments) {
  const bool asks = !arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help");
  if (arguments.empty() || (asks && arguments.size() == 1)) {
    print(program_help(registry));
    return arguments.empty() ? kUserError : kDone;
  }
  if (arguments[0] == "--version") {
    print(text_of("hone ", HONE_VERSION, "\n"));
    return kDone;
  }
  const bool help = arguments[0] == "help" && arguments.size() > 1;
  const std::string& name = help ? arguments[1] : arguments[0];
  const Command* command = registry.find(name);
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const Command& known : registry.commands()) names.push_back(known.name);
    const std::string nearest = nearest_name(name, names);
    throw Error(text_of("hone ", shown(name)), "no such command",
                nearest.empty() ? "hone --help lists them" : text_of("did you mean ", nearest, "?"));
  }
  const auto rest = arguments.subspan(1);
  const auto end = std::ranges::find(rest, "--");
  const bool asked = std::any_of(rest.begin(), end, [](const auto& word) { return word == "--help" || word == "-h"; });
  if (help || asked) {
    print(command->help());
    return kDone;
  }
  return command->run(rest);
}

}  // namespace

void CommandRegistry::add(Command command) {
  HONE_ASSERT(find(command.name) == nullptr, "the command ", command.name, " is registered twice");
  commands_.push_back(std::move(command));
}

const Command* CommandRegistry::find(std::string_view name) const {
  const auto at = std::ranges::find(commands_, name, &Command::name);
  return at == commands_.end() ? nullptr : &*at;
}

std::string program_help(const CommandRegistry& registry) {
  std::string text =
      "hone takes a language model from text through pre-training, fine-tuning and reinforcement\n"
      "learning to evaluation and chat.\n\n"
      "Usage: hone COMMAND [--config FILE.yaml] [--key value ...]\n\nCommands:\n";
  for (const Command& command : registry.commands()) {
    std::string name = "  " + command.name;
    name.resize(std::max<std::size_t>(name.size() + 1, 14), ' ');
    text += name + command.summary + "\n";
  }
  return text +
         "\n`hone COMMAND --help` shows a command's keys. Each is a line of the YAML file or a flag; flags win.\n";
}

int run_command_line(const CommandRegistry& registry, std::span<const std::string> arguments) {
  try {
    return dispatch(registry, arguments);
  } catch (const Error& error) {
    print_error("error: ", error.what());
    return kUserError;
  } catch (const Interrupted&) {
    print_error("", "interrupted");
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    print_error("error: ", "the machine has no more memory");
    return kUserError;
  } catch (const std::exception& error) {
    print_error("a defect in hone, please report this line and the command: ", error.what());
    return kDefect;
  }
}

}  // namespace hone
