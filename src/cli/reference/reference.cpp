// hone reference: every key of every command, as docs/reference.md has it.
#include <cstdio>

#include "cli/registry.h"
#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

struct ReferenceOptions {
  template <class Visitor>
  void fields(Visitor&) {}
};

std::string in_code(std::string_view text) { return text_of("`", text, "`"); }

std::string command_text(const Command& command) {
  std::string text = text_of("## hone ", command.name, "\n\n", command.summary, ".\n\n");
  if (!command.key_tables) return text + "```\n" + command.help() + "```\n\n";
  const std::string keys = command.key_tables();
  return keys.empty() ? text : text + keys + "\n";
}

std::string_view treatment(ForeignKey::Kind kind) {
  switch (kind) {
    case ForeignKey::Kind::no_effect:
      return "accepted, said once";
    case ForeignKey::Kind::not_yet:
      return "an error: not implemented yet";
    case ForeignKey::Kind::never:
      break;
  }
  return "an error: not offered";
}

// Keys of transformers, TRL, accelerate and open-r1, with the commands that take them.
std::string foreign_text(std::span<const Command> commands) {
  std::vector<std::string> names;
  std::span<const ForeignKey> keys;
  for (const Command& command : commands) {
    if (command.foreign.empty()) continue;
    names.push_back(in_code("hone " + command.name));
    keys = command.foreign;
  }
  std::string text = text_of(
      "## Keys of other tools\n\n", join(names, ", "),
      " read the recipes of TRL, transformers and open-r1 as they stand. These keys of theirs are no options of\n"
      "hone; a value that asks for nothing (null, false, none, no, [], {} and those named) passes without a word.\n\n"
      "| key | what becomes of it | why | passes silently |\n|---|---|---|---|\n");
  for (const ForeignKey& key : keys) {
    text += text_of("| `", key.name, "` | ", treatment(key.kind), " | ", key.note, " | ",
                    join(split(key.harmless, '|'), ", "), " |\n");
  }
  return text;
}

std::string page() {
  CommandRegistry registry;
  register_all_cli(registry);
  std::string text =
      "# Reference\n\n"
      "Every key of every command, written by `hone reference`. A key is a line of the recipe, the YAML file that an\n"
      "argument or `--config` names, or a flag, with hyphens or underscores; flags win. `env: {NAME: value}` sets\n"
      "environment variables. Lists are `[a, b]` or `a,b`; a key of a map is `map.key` as a flag. YAML 1.1's yes, no, "
      "on\n"
      "and off are booleans, and so is the text 'no'. Other names for keys (`--lr`, `--epochs`, `--batch_size`) are "
      "no\n"
      "keys: the error names the key that is meant.\n\n";
  for (const Command& command : registry.commands()) text += command_text(command);
  return text + foreign_text(registry.commands());
}

int run(const ReferenceOptions&, const OptionInput&) {
  std::fputs(page().c_str(), stdout);
  return 0;
}

}  // namespace

void register_reference(CommandRegistry& registry) {
  registry.add(
      make_command<ReferenceOptions>({.name = "reference", .summary = "Every key of every command, as Markdown"}, run));
}

}  // namespace hone
