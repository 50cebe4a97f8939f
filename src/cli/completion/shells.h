// Completion scripts for shells, written from the commands' keys.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace hone {

// The words that a command's first argument may be: "[pretrain|sft RECIPE.yaml]" has pretrain and sft.
[[nodiscard]] std::vector<std::string> first_words(std::string_view positionals);

// Each is a whole script, to be sourced. Arguments that are neither keys nor known words complete as file names.
[[nodiscard]] std::string bash_completion(std::span<const Command> commands);
[[nodiscard]] std::string zsh_completion(std::span<const Command> commands);
[[nodiscard]] std::string fish_completion(std::span<const Command> commands);

}  // namespace hone
