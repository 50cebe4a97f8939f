// Generates the completion scripts of `hone completion` from the commands and their keys.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace hone {

// Returns the words that the first argument of a command may be, from its positionals in the usage line:
// "[pretrain|sft] [RECIPE.yaml]" gives pretrain and sft.
[[nodiscard]] std::vector<std::string> first_words(std::string_view positionals);

// Each function returns a complete script, which the shell sources. Arguments that are neither keys nor known words
// complete as file names.
[[nodiscard]] std::string bash_completion(std::span<const Command> commands);
[[nodiscard]] std::string zsh_completion(std::span<const Command> commands);
[[nodiscard]] std::string fish_completion(std::span<const Command> commands);

}  // namespace hone
