// Defines a command of the program, `hone NAME ...`: its help, its keys and the function that runs it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/options.h"

namespace hone {

// A key of a command, as shell completion and the manual page show it.
struct CommandKey {
  std::string name;
  std::string group;
  std::string help;
  std::string default_text;         // empty if the key has no default value
  std::vector<std::string> values;  // allowed values of an enumeration; empty for any other type
  bool takes_no_value = false;      // --name without a value sets it
};
// Returns the keys of an option table in the order of their declaration.
[[nodiscard]] std::vector<CommandKey> keys_of(const OptionTable& table);

// A command of the registry. make_command() builds one from a struct of options.
struct Command {
  std::string name;
  std::string summary;  // one line, for `hone --help`
  std::function<std::string()> help;
  // Runs the command on its arguments and returns the exit code. Throws Error for a problem that the user can fix, and
  // Interrupted after Ctrl+C or SIGTERM, once everything worth keeping is saved.
  std::function<int(std::span<const std::string>)> run;
  std::function<std::vector<CommandKey>()> keys;
  std::string positionals = {};                  // see CommandText
  std::string details = {};                      // see CommandText
  std::function<std::string()> key_tables = {};  // tables of the keys in Markdown; if empty, the reference shows `help`
  std::span<const ForeignKey> foreign = {};      // keys of other tools that the command also accepts
};

// The texts that the help and the usage line of a command consist of.
struct CommandText {
  std::string name;
  std::string summary;
  std::string positionals = {};  // as the usage line shows them; if empty, the only positional argument is a recipe
  std::string details = {};      // paragraphs between the usage line and the options
  // `taken`: an argument that ends in .yaml or .yml is the recipe, as if --config named it.
  RecipeArgument recipe = RecipeArgument::kTaken;
};

// Help of a command: the line "Usage: hone NAME ...", the summary, the details and the options.
[[nodiscard]] std::string command_help(const CommandText& text, const OptionTable& table);
// Applies what was read besides the options: logs the notices and sets the environment variables of the recipe. Throws
// Error if there are positional arguments and the command takes none.
void apply_input(const CommandText& text, const OptionInput& input);

// Returns the model of `hone NAME MODEL`: the positional argument if there is one, otherwise `given`, the value of
// model_name_or_path. Throws Error if no model or more than one is named.
[[nodiscard]] std::string model_argument(std::string_view command, const std::string& given, const OptionInput& input);

// Makes a command whose keys and flags are the fields of Options. `run` receives the options as they were read: each
// value is checked against the range in its own declaration, and no check relates one option to another.
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
