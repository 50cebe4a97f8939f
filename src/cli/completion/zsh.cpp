#include <map>

#include "cli/completion/shells.h"
#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::string_view kZshHead = R"sh(#compdef hone
# Completion of hone for zsh, written by `hone completion zsh`.
_hone() {
  local command="$words[2]" current="$words[CURRENT]" previous="$words[CURRENT-1]"
  local -a commands keys first values
)sh";

constexpr std::string_view kZshTail = R"sh(  if [[ $current == -* ]]; then
    keys+=('--help:Show the keys')
    _describe 'key' keys
  elif (( $#values )); then
    compadd -a values
  else
    (( CURRENT == 3 && $#first )) && compadd -a first
    _files
  fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _hone "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i -D }
  compdef _hone hone
fi
)sh";

// Returns an entry for zsh's _describe, "name:text" in single quotes.
std::string described(std::string_view name, std::string_view text) {
  std::string entry = "'";
  for (const char c : name) entry += c == ':' ? std::string("\\:") : std::string(1, c);
  entry += ':';
  for (const char c : text) entry += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return entry + "'";
}

}  // namespace

std::string zsh_completion(std::span<const Command> commands) {
  std::string script(kZshHead);
  std::string names;
  script += "  commands=(\n";
  for (const Command& command : commands) {
    script += text_of("    ", described(command.name, command.summary), "\n");
    names += (names.empty() ? "" : " ") + command.name;
  }
  script += "    'help:Show the keys of a command'\n  )\n";
  script += "  if (( CURRENT == 2 )); then\n    _describe 'command' commands\n    return\n  fi\n  case $command in\n";
  script += text_of("    help) first=(", names, ") ;;\n");
  std::map<std::string, std::string> pattern_of_values;  // as in bash.cpp
  for (const Command& command : commands) {
    script += text_of("    ", command.name, ")\n      first=(", join(first_words(command.positionals), " "),
                      ")\n      keys=(\n");
    for (const CommandKey& key : command.keys()) {
      script += text_of("        ", described("--" + key.name, key.help), "\n");
      if (key.values.empty()) continue;
      std::string& pattern = pattern_of_values[join(key.values, " ")];
      pattern += text_of(pattern.empty() ? "" : "|", command.name, ":--", key.name);
    }
    script += "      ) ;;\n";
  }
  script += "  esac\n  case $command:$previous in\n";
  for (const auto& [values, pattern] : pattern_of_values)
    script += text_of("    ", pattern, ") values=(", values, ") ;;\n");
  return script + "  esac\n" + std::string(kZshTail);
}

}  // namespace hone
