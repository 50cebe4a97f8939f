// hone man: the manual page, hone(1), written from the commands' keys.
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

// As running text of roff: no dash is broken or made a hyphen, no line is a request.
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
      "hone takes a language model from text through pre\\-training, fine\\-tuning and reinforcement learning to\n"
      "evaluation and chat. A key is a line of the recipe, a YAML file, or a flag, with hyphens or underscores; flags\n"
      "win. \\fB\\-\\-config\\fR \\fIRECIPE\\fR names the recipe too, whatever its ending.\n.SH COMMANDS\n");
  for (const Command& command : registry.commands()) text += command_entry(command);
  return text +
         ".SH EXIT STATUS\n.TP\n0\nDone.\n.TP\n1\nSomething that the user can mend; one line on standard error says "
         "what.\n.TP\n2\nA defect in hone.\n.TP\n130\nInterrupted, after what there was to save was saved.\n";
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
                                         .summary = "The manual page, hone(1)",
                                         .details = "hone man | man -l - shows it.",
                                         .recipe = RecipeArgument::refused},
                                        run));
}

}  // namespace hone
