// Prints options: the help text, the Markdown tables of the documentation, and the values in effect.
#include <algorithm>

#include "core/error.h"
#include "core/json_value.h"
#include "core/option_value.h"
#include "core/options.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::size_t kHelpColumn = 36;
constexpr std::size_t kHelpWidth = 110;

std::string placeholder_of(const Option& option) {
  if (std::holds_alternative<EnumTarget>(option.target)) return " NAME";
  if (takes_no_value(option)) return "";
  if (is_list(option)) return " LIST";
  if (is_untyped(option)) return " MAP";
  const bool text = std::holds_alternative<std::string*>(option.target) ||
                    std::holds_alternative<std::optional<std::string>*>(option.target);
  return text ? " TEXT" : " N";
}

std::string type_of(const Option& option) {
  if (const auto* target = std::get_if<EnumTarget>(&option.target)) {
    return join(split(target->table->names, '|'), ", ");
  }
  return expectation_of(option);
}

std::string explanation_of(const Option& option) {
  std::string text = option.help;
  if (std::holds_alternative<EnumTarget>(option.target)) text += ": " + type_of(option);
  const std::string& value = option.default_text;
  if (!value.empty() && value != "[]" && value != "\"\"" && value != "false") text += " [" + value + "]";
  return text;
}

// Escapes text for a Markdown table, where a bar would end the cell and a line break the row.
std::string in_cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c == '\n' ? ' ' : c;
  }
  return cell;
}

// Appends text wrapped at kHelpWidth columns; the first line starts at kHelpColumn, later ones are indented to it.
void append_wrapped(std::string_view text, std::string& out) {
  std::size_t column = kHelpColumn;
  bool first = true;
  for (const std::string& word : split(text, ' ')) {
    if (!first && column + 1 + word.size() > kHelpWidth) {
      out += "\n" + std::string(kHelpColumn, ' ');
      column = kHelpColumn;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    first = false;
  }
  out += '\n';
}

}  // namespace

std::string option_help(const OptionTable& table) {
  std::string text;
  std::string group;
  for (const Option& option : table.options()) {
    if (option.group != group) {
      group = option.group;
      text += (text.empty() ? "" : "\n") + group + ":\n";
    }
    std::string left = "  --" + option.name + placeholder_of(option);
    if (left.size() + 1 > kHelpColumn) {
      text += left + "\n" + std::string(kHelpColumn, ' ');
    } else {
      left.resize(kHelpColumn, ' ');
      text += left;
    }
    append_wrapped(explanation_of(option), text);
  }
  return text;
}

std::string option_markdown(const OptionTable& table) {
  std::string text;
  std::string group;
  for (const Option& option : table.options()) {
    if (option.group != group || text.empty()) {
      group = option.group;
      if (!text.empty()) text += "\n";
      if (!group.empty()) text += text_of("### ", group, "\n\n");
      text += "| key | value | default | meaning |\n|---|---|---|---|\n";
    }
    const std::string value = option.default_text.empty() ? "" : text_of("`", option.default_text, "`");
    std::string meaning = option.help;
    for (const std::string& other : table.names()) {
      if (table.find(other) == &option && other != option.name) meaning += text_of("; also `", other, "`");
    }
    text += text_of("| `", option.name, "` | ", in_cell(type_of(option)), " | ", in_cell(value), " | ",
                    in_cell(meaning), " |\n");
  }
  return text;
}

Json option_json(const OptionTable& table) {
  Json json = Json::object();
  for (const Option& option : table.options()) {
    const std::size_t dot = option.name.find('.');
    if (dot == std::string::npos) {
      json[option.name] = value_json(option);
    } else {
      json[option.name.substr(0, dot)][option.name.substr(dot + 1)] = value_json(option);
    }
  }
  return json;
}

std::string option_yaml(const OptionTable& table) {
  std::string text;
  std::string map;
  for (const Option& option : table.options()) {
    const std::string value = value_text(option);
    const std::size_t dot = option.name.find('.');
    const std::string outer = dot == std::string::npos ? "" : option.name.substr(0, dot);
    if (outer != map) {
      map = outer;
      if (!map.empty()) text += map + ":\n";
    }
    const std::string line = value.empty() ? "null" : value;
    text += map.empty() ? text_of(option.name, ": ", line, "\n")
                        : text_of("  ", option.name.substr(dot + 1), ": ", line, "\n");
  }
  return text;
}

}  // namespace hone
