// A command of the program: `hone NAME ...`.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/options.h"

namespace hone {

// A key of a command, as completion and the manual page show it.
struct CommandKey {
  std::string name;
  std::string group;
  std::string help;
  std::string default_text;         // empty where there is no value
  std::vector<std::string> values;  // those that it may have, where they are few
  bool takes_no_value = false;      // --name alone sets it
};
[[nodiscard]] std::vector<CommandKey> keys_of(const OptionTable& table);

struct Command {
  std::string name;
  std::string summary;  // one line, for `hone --help`
  std::function<std::string()> help;
  // Returns the exit code. Throws Error for what the user can mend, Interrupted once it has saved.
  std::function<int(std::span<const std::string>)> run;
  std::function<std::vector<CommandKey>()> keys;
  std::string positionals = {};                  // as CommandText has them
  std::string details = {};                      // as CommandText has them
  std::function<std::string()> key_tables = {};  // Markdown; empty: the help says all
  std::span<const ForeignKey> foreign = {};      // other tools' keys that it takes too
};

struct CommandText {
  std::string name;
  std::string summary;
  std::string positionals = {};  // as the usage line shows them; empty: there are none but a recipe
  std::string details = {};      // paragraphs between the usage line and the options
  // Whether an argument that ends in .yaml or .yml is the recipe, as with --config.
  RecipeArgument recipe = RecipeArgument::taken;
};

// "Usage: hone NAME ...", the details, the options.
[[nodiscard]] std::string command_help(const CommandText& text, const OptionTable& table);
// Refuses positionals that the command does not take, says the notices, sets the environment.
void apply_input(const CommandText& text, const OptionInput& input);

// The model of `hone NAME MODEL`, its one argument or model_name_or_path's `given`. Throws Error where none is named,
// or several are.
[[nodiscard]] std::string model_argument(std::string_view command, const std::string& given, const OptionInput& input);

// A command whose keys and flags are the fields of Options. `run` gets them as read, unchecked beyond what each
// declaration says.
template <class Options>
[[nodiscard]] Command make_command(const CommandText& text, int (*run)(const Options&, const OptionInput&),
                                   std::span<const ForeignKey> foreign = {}) {
  const auto help = [text] {
    Options defaults;
    return command_help(text, OptionTable(defaults));
  };
  return {.name = text.name,
          .summary = text.summary,
          .help = help,
          .run =
              [text, run, foreign](std::span<const std::string> arguments) {
                Options options;
                const OptionInput input = read_options(OptionTable(options), arguments, foreign, text.recipe);
                apply_input(text, input);
                return run(options, input);
              },
          .keys =
              [] {
                Options defaults;
                return keys_of(OptionTable(defaults));
              },
          .positionals = text.positionals,
          .details = text.details,
          .key_tables =
              [] {
                Options defaults;
                return option_markdown(OptionTable(defaults));
              },
          .foreign = foreign};
}

}  // namespace hone
