#include "data/columns.h"

#include <array>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::array<std::string_view, 3> kPromptColumns = {"prompt", "problem", "question"};
constexpr std::array<std::string_view, 2> kSolutionColumns = {"solution", "answer"};
constexpr std::array<std::string_view, 2> kMessageColumns = {"messages", "conversations"};

std::string columns_of(const Json& row) {
  std::vector<std::string> names;
  for (const auto& item : row.items()) names.push_back(item.key());
  return join(names, ", ");
}

[[noreturn]] void fail_missing(std::string_view wanted, const Json& row) {
  throw Error(text_of("no column ", wanted, "; the columns are: ", columns_of(row)));
}

void rename(Json& object, const char* from, const char* to) {
  const auto found = object.find(from);
  if (found == object.end() || object.contains(to)) return;
  object[to] = *found;
  object.erase(from);
}

void check_message(const Json& message, std::size_t number) {
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty()) {
    throw Error(text_of("message ", number, " has no role"));
  }
  const auto content = message.find("content");
  const bool is_there = content != message.end() && (content->is_string() || content->is_array());
  if (!is_there && !message.contains("tool_calls")) throw Error(text_of("message ", number, " has no content"));
}

}  // namespace

std::optional<std::string_view> first_column(const Json& row, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    if (row.contains(name)) return name;
  }
  return std::nullopt;
}

RowKind kind_of(const Json& row, const ColumnOptions& options) {
  if (row.contains("prompt") && row.contains("completion")) return RowKind::kPromptCompletion;
  if (first_column(row, kMessageColumns)) return RowKind::kMessages;
  if (row.contains(options.text_field)) return RowKind::kText;
  const bool has_prompt = options.prompt_column.empty() ? first_column(row, kPromptColumns).has_value()
                                                        : row.contains(options.prompt_column);
  if (has_prompt && first_column(row, kSolutionColumns)) return RowKind::kProblemSolution;
  fail_missing(text_of("messages, '", options.text_field,
                       "' (dataset_text_field), prompt with completion, or problem with solution"),
               row);
}

std::string_view prompt_column_of(const Json& row, const ColumnOptions& options) {
  if (!options.prompt_column.empty()) {
    if (!row.contains(options.prompt_column)) {
      fail_missing(text_of("'", options.prompt_column, "' (dataset_prompt_column)"), row);
    }
    return options.prompt_column;
  }
  const auto found = first_column(row, kPromptColumns);
  if (!found) fail_missing("prompt, problem or question (set dataset_prompt_column)", row);
  return *found;
}

std::string_view solution_column_of(const Json& row) {
  const auto found = first_column(row, kSolutionColumns);
  if (!found) fail_missing("solution or answer", row);
  return *found;
}

bool is_text(const Json& row, std::string_view column) { return row.at(std::string(column)).is_string(); }

const std::string& text_in(const Json& row, std::string_view column) {
  const Json& value = row.at(std::string(column));
  if (!value.is_string()) throw Error(text_of("column '", column, "' is ", value.type_name(), ", not text"));
  const auto& text = value.get_ref<const std::string&>();
  if (trim(text).empty()) throw Error(text_of("column '", column, "' is empty"));
  return text;
}

Json messages_in(const Json& row, std::string_view column) {
  const Json& value = row.at(std::string(column));
  if (!value.is_array())
    throw Error(text_of("column '", column, "' is ", value.type_name(), ", not a list of messages"));
  if (value.empty()) throw Error(text_of("column '", column, "' is empty"));
  Json messages = value;
  std::size_t number = 0;
  for (Json& message : messages) {
    ++number;
    if (!message.is_object()) throw Error(text_of("message ", number, " is not an object"));
    rename(message, "from", "role");
    rename(message, "value", "content");
    check_message(message, number);
  }
  return messages;
}

void add_system_prompt(Json& messages, const ColumnOptions& options) {
  if (options.system_prompt.empty()) return;
  if (!messages.empty() && messages[0]["role"] == "system") return;
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", options.system_prompt}});
}

}  // namespace hone
