// Interpretation of a row's columns: which columns hold the text, the messages, the prompt and the solution. The
// functions throw Error with the reason only; the caller adds the file and line.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/json.h"

namespace hone {

struct ColumnOptions {
  std::string text_field = "text";  // dataset_text_field
  std::string prompt_column;        // dataset_prompt_column; empty: the first of prompt, problem, question
  std::string system_prompt;  // inserted before conversations that do not start with a system message; empty: none
};

// Kinds of rows. A row is of the first kind whose columns it has.
enum class RowKind {
  kPromptCompletion,  // prompt and completion: two texts or two message lists
  kMessages,          // messages (or conversations)
  kText,              // text_field
  kProblemSolution,   // prompt_column (or prompt, problem, question) and solution or answer: two texts
};
// Returns the kind of a row. Throws Error that lists its columns if it is of no kind.
[[nodiscard]] RowKind kind_of(const Json& row, const ColumnOptions& options);

// Returns the first of `names` that the row has, or nullopt.
[[nodiscard]] std::optional<std::string_view> first_column(const Json& row, std::span<const std::string_view> names);
// Return the names of the prompt column and the solution column. Throw Error if the row has none.
[[nodiscard]] std::string_view prompt_column_of(const Json& row, const ColumnOptions& options);
[[nodiscard]] std::string_view solution_column_of(const Json& row);

[[nodiscard]] bool is_text(const Json& row, std::string_view column);
// Returns a column's text. Throws Error if it is not a string, is empty, or contains only white space.
[[nodiscard]] const std::string& text_in(const Json& row, std::string_view column);
// Returns a column's messages, each with "role" and "content" (the older "from" and "value" are renamed).
[[nodiscard]] Json messages_in(const Json& row, std::string_view column);
// Inserts the system prompt, if there is one and `messages` do not start with a system message.
void add_system_prompt(Json& messages, const ColumnOptions& options);

}  // namespace hone
