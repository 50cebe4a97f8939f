// What the columns of a row mean. The functions throw Error with the reason alone: the caller knows the place.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/json.h"

namespace hone {

struct ColumnOptions {
  std::string text_field = "text";  // dataset_text_field
  std::string prompt_column;        // dataset_prompt_column; empty: prompt, problem or question
  std::string system_prompt;        // put before conversations that do not start with one; empty: none
};

// The first that a row has, in this order.
enum class RowKind {
  prompt_completion,  // prompt, completion: two texts or two message lists
  messages,           // messages (or conversations)
  text,               // text_field
  problem_solution,   // prompt_column (prompt, problem or question), and solution or answer: two texts
};
[[nodiscard]] RowKind kind_of(const Json& row, const ColumnOptions& options);

// The first of `names` that the row has; nullopt where there is none.
[[nodiscard]] std::optional<std::string_view> first_column(const Json& row, std::span<const std::string_view> names);
[[nodiscard]] std::string_view prompt_column_of(const Json& row, const ColumnOptions& options);
[[nodiscard]] std::string_view solution_column_of(const Json& row);

[[nodiscard]] bool is_text(const Json& row, std::string_view column);
// A column's text; neither empty nor white space alone.
[[nodiscard]] const std::string& text_in(const Json& row, std::string_view column);
// A column's messages, each with "role" and "content" (also from the older "from" and "value").
[[nodiscard]] Json messages_in(const Json& row, std::string_view column);
// The system prompt, where there is one and `messages` do not start with their own.
void add_system_prompt(Json& messages, const ColumnOptions& options);

}  // namespace hone
