// hone man: prints the manual page, hone(1), generated from the commands and their keys.
#include <cstdio>
#include <string>
#include <string_view>

#include "cli/registry.h"
#include "core/error.h"

namespace hone {
namespace {

struct ManOptions {
  template <class Visitor>
  void fields(Visitor&) {}
};

// Escapes text for roff: backslashes, dashes (which would become hyphens) and a line's first . or ' (a roff request).
std::string roff(std::string_view text) {
  std::string escaped;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) escaped += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string key_entry(const CommandKey& key) {
  std::string text = text_of(".TP\n\\fB\\-\\-", roff(key.name), "\\fR");
  if (!key.values.empty()) {
    std::string values;
    for (const std::string& value : key.values) values += (values.empty() ? "" : "|") + value;
    text += " " + roff(values);
  } else if (!key.takes_no_value) {
    text += " \\fIvalue\\fR";
  }
  text += "\n";
  if (!key.help.empty()) text += roff(key.help);
  if (!key.default_text.empty()) text += text_of(key.help.empty() ? "" : " ", "[", roff(key.default_text), "]");
  return text + (key.help.empty() && key.default_text.empty() ? "\\&\n" : "\n");
}

std::string command_entry(const Command& command) {
  std::string text = text_of(".SS \"hone ", command.name, command.positionals.empty() ? "" : " ",
                             roff(command.positionals), "\"\n", roff(command.summary), ".\n");
  if (!command.details.empty()) text += text_of(".PP\n.nf\n", roff(command.details), "\n.fi\n");
  std::string group;
  for (const CommandKey& key : command.keys()) {
    if (key.group != group) text += text_of(".PP\n\\fI", roff(key.group), "\\fR\n");
    group = key.group;
    text += key_entry(key);
  }
  return text;
}

std::string manual(const CommandRegistry& registry) {
  std::string text = text_of(
      ".TH HONE 1 \"\" \"hone ", HONE_VERSION,
      "\" \"User Commands\"\n.SH NAME\nhone \\- trains reasoning language models\n.SH SYNOPSIS\n"
      "\\fBhone\\fR \\fICOMMAND\\fR [\\fIRECIPE.yaml\\fR] [\\fB\\-\\-key\\fR \\fIvalue\\fR ...]\n.SH DESCRIPTION\n"
      "hone trains reasoning language models: tokenizer, pre\\-training, supervised fine\\-tuning, reinforcement\n"
      "learning, evaluation, chat and serving. Set a key in the recipe, a YAML file, or as a flag, with hyphens or\n"
      "underscores; a flag overrides the recipe. \\fB\\-\\-config\\fR \\fIFILE\\fR names a recipe with any file\n"
      "extension.\n.SH COMMANDS\n");
  for (const Command& command : registry.commands()) text += command_entry(command);
  return text +
         ".SH EXIT STATUS\n.TP\n0\nSuccess.\n.TP\n1\nAn error that the user can fix; one line on standard error "
         "describes it.\n.TP\n2\nA defect in hone.\n.TP\n130\nInterrupted by Ctrl+C or SIGTERM, after saving.\n";
}

int run(const ManOptions&, const OptionInput&) {
  CommandRegistry registry;
  register_all_cli(registry);
  std::fputs(manual(registry).c_str(), stdout);
  return 0;
}

}  // namespace

void register_man(CommandRegistry& registry) {
  registry.add(make_command<ManOptions>({.name = "man",
                                         .summary = "Print the manual page, hone(1)",
                                         .details = "View it with: hone man | man -l -",
                                         .recipe = RecipeArgument::kRefused},
                                        run));
}

}  // namespace hone
