// hone completion: prints a script that completes hone's commands, keys and values in a shell.
#include <algorithm>
#include <cstdio>

#include "cli/completion/shells.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

struct CompletionOptions {
  template <class Visitor>
  void fields(Visitor&) {}
};

struct Shell {
  std::string_view name;
  std::string (*script)(std::span<const Command>);
};
constexpr Shell kShells[] = {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}};

int run(const CompletionOptions&, const OptionInput& input) {
  const std::string name = input.positionals.empty() ? std::string() : input.positionals[0];
  const auto shell = std::ranges::find(kShells, name, &Shell::name);
  if (shell == std::end(kShells) || input.positionals.size() > 1) {
    throw Error("hone completion",
                text_of("expected bash, zsh or fish, saw ", shown(std::string_view(join(input.positionals, " ")))),
                "for example source <(hone completion bash)");
  }
  CommandRegistry registry;
  register_all_cli(registry);
  std::fputs(shell->script(registry.commands()).c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<std::string> first_words(std::string_view positionals) {
  const std::string_view first = positionals.substr(0, positionals.find(' '));
  std::vector<std::string> words;
  std::string word;
  for (const char c : first) {
    if (c >= 'a' && c <= 'z') {
      word += c;
    } else if (c == '|' || c == ']') {
      words.push_back(word);
      word.clear();
    } else if (c != '[') {
      return {};
    }
  }
  if (!word.empty()) words.push_back(word);
  std::erase(words, std::string());
  return words;
}

void register_completion(CommandRegistry& registry) {
  registry.add(
      make_command<CompletionOptions>({.name = "completion",
                                       .summary = "Print a completion script for bash, zsh or fish",
                                       .positionals = "bash|zsh|fish",
                                       .details = "bash: source <(hone completion bash), in ~/.bashrc\n"
                                                  "zsh:  source <(hone completion zsh), in ~/.zshrc\n"
                                                  "fish: hone completion fish > ~/.config/fish/completions/hone.fish",
                                       .recipe = RecipeArgument::kRefused},
                                      run));
}

}  // namespace hone
