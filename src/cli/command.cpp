#include "cli/command.h"

#include <cstdlib>

#include "core/error.h"
#include "core/log.h"
#include "core/option_value.h"
#include "core/strings.h"

namespace hone {

std::vector<CommandKey> keys_of(const OptionTable& table) {
  std::vector<CommandKey> keys;
  for (const Option& option : table.options()) {
    CommandKey key{.name = option.name,
                   .group = option.group,
                   .help = option.help,
                   .default_text = option.default_text,
                   .values = {},
                   .takes_no_value = takes_no_value(option)};
    if (const auto* target = std::get_if<EnumTarget>(&option.target)) key.values = split(target->table->names, '|');
    keys.push_back(std::move(key));
  }
  return keys;
}

std::string command_help(const CommandText& text, const OptionTable& table) {
  std::string help = text_of("Usage: hone ", text.name, " ");
  if (!text.positionals.empty()) help += text.positionals + " ";
  help += text.recipe == RecipeArgument::kTaken ? "[RECIPE.yaml]" : "[--config RECIPE.yaml]";
  help += " [--key value ...]\n\n" + text.summary + ".\n";
  if (!text.details.empty()) help += "\n" + text.details + "\n";
  return help + "\n" + option_help(table);
}

void apply_input(const CommandText& text, const OptionInput& input) {
  if (!input.positionals.empty() && text.positionals.empty()) {
    throw Error(
        text_of("hone ", text.name), text_of("unexpected argument ", shown(input.positionals[0])),
        text.recipe == RecipeArgument::kTaken ? "a recipe ends in .yaml, flags begin with --" : "flags begin with --");
  }
  for (const std::string& line : notice_lines(input.notices)) log_once(line);
  for (const auto& [name, value] : input.environment) ::setenv(name.c_str(), value.c_str(), 1);
}

std::string model_argument(std::string_view command, const std::string& given, const OptionInput& input) {
  const std::string place = text_of("hone ", command);
  if (input.positionals.size() > 1) {
    throw Error(place, text_of("expected one model, saw ", input.positionals.size(), " arguments"));
  }
  if (!input.positionals.empty() && input.place_of("model_name_or_path").starts_with("--")) {
    throw Error(place, text_of("expected one model, saw ", shown(input.positionals[0]), " and ", shown(given)),
                "remove the argument or --model_name_or_path");
  }
  const std::string model = input.positionals.empty() ? given : input.positionals[0];
  if (model.empty()) throw Error(place, "no model given", text_of(place, " FOLDER"));
  return model;
}

}  // namespace hone
