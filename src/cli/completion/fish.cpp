#include "cli/completion/shells.h"
#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::string_view kFishHead = R"sh(# Completion of hone for fish, written by `hone completion fish`.
function __hone_command # true if the command on the line is one of the arguments
  set -l words (commandline -opc)
  test (count $words) -ge 2; and contains -- $words[2] $argv
end
function __hone_first # true if, in addition, the next word is the command's first argument
  set -l words (commandline -opc)
  test (count $words) -eq 2; and contains -- $words[2] $argv
end
complete -c hone -e
)sh";

std::string fish_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

}  // namespace

std::string fish_completion(std::span<const Command> commands) {
  std::string script(kFishHead);
  std::string names;
  for (const Command& command : commands) {
    script += text_of("complete -c hone -n __fish_use_subcommand -f -a ", command.name, " -d ",
                      fish_quoted(command.summary), "\n");
    names += (names.empty() ? "" : " ") + command.name;
  }
  script += "complete -c hone -n __fish_use_subcommand -f -a help -d 'Show the keys of a command'\n";
  script += text_of("complete -c hone -n '__hone_first help' -f -a ", fish_quoted(names), "\n");
  for (const Command& command : commands) {
    const std::string condition = fish_quoted("__hone_command " + command.name);
    const std::vector<std::string> first = first_words(command.positionals);
    if (!first.empty()) {
      script += text_of("complete -c hone -n ", fish_quoted("__hone_first " + command.name), " -a ",
                        fish_quoted(join(first, " ")), "\n");
    }
    for (const CommandKey& key : command.keys()) {
      script += text_of("complete -c hone -n ", condition, " -l ", fish_quoted(key.name));
      if (!key.values.empty()) {
        script += text_of(key.takes_no_value ? " -a " : " -x -a ", fish_quoted(join(key.values, " ")));
      } else if (!key.takes_no_value) {
        script += " -r";
      }
      script += text_of(" -d ", fish_quoted(key.help), "\n");
    }
  }
  return script;
}

}  // namespace hone
