#include <map>

#include "cli/completion/shells.h"
#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::string_view kBashHead = R"sh(# Completion of hone for bash, written by `hone completion bash`.
_hone() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"
  local words="" keys="" values=""
  COMPREPLY=()
  # bash splits --key=value into three words.
  if [[ $current == "=" ]]; then
    current=""
  elif [[ $previous == "=" ]]; then
    previous="${COMP_WORDS[COMP_CWORD-2]}"
  fi
)sh";

constexpr std::string_view kBashTail = R"sh(  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$keys --help" -- "$current"))
  elif [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
  elif (( COMP_CWORD == 2 )) && [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  fi
}
complete -o default -F _hone hone
)sh";

}  // namespace

std::string bash_completion(std::span<const Command> commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  std::string script(kBashHead);
  script += text_of("  if (( COMP_CWORD == 1 )); then\n    COMPREPLY=($(compgen -W \"", join(names, " "),
                    " help --help --version\" -- \"$current\"))\n    return\n  fi\n  case $command in\n",
                    "    help) words=\"", join(names, " "), "\" ;;\n");
  // Maps the values of a key to the `case` pattern of all keys that have these values: "a b" -> "sft:--x|sft:--y".
  std::map<std::string, std::string> pattern_of_values;
  for (const Command& command : commands) {
    std::string keys;
    for (const CommandKey& key : command.keys()) {
      keys += (keys.empty() ? "--" : " --") + key.name;
      if (key.values.empty()) continue;
      std::string& pattern = pattern_of_values[join(key.values, " ")];
      pattern += text_of(pattern.empty() ? "" : "|", command.name, ":--", key.name);
    }
    script += text_of("    ", command.name, ")\n      words=\"", join(first_words(command.positionals), " "),
                      "\"\n      keys=\"", keys, "\" ;;\n");
  }
  script += "  esac\n  case $command:$previous in\n";
  for (const auto& [values, pattern] : pattern_of_values)
    script += text_of("    ", pattern, ") values=\"", values, "\" ;;\n");
  return script + "  esac\n" + std::string(kBashTail);
}

}  // namespace hone
