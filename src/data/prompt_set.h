// Prompts to generate from, together with the columns that rewards read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "data/encode.h"

namespace hone {

struct Prompt {
  std::vector<TokenId> tokens;
  std::string prefill;  // text of the answer's start if the prompt ends with an assistant message, otherwise empty
  std::string row;      // all columns as JSON text
};

// Prompts stored in flat arrays.
class PromptSet {
 public:
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(token_ends_.size()); }
  [[nodiscard]] std::span<const TokenId> tokens(std::int64_t prompt) const;
  [[nodiscard]] std::string_view prefill(std::int64_t prompt) const;
  [[nodiscard]] Json row(std::int64_t prompt) const;               // all columns as in the source
  [[nodiscard]] std::int64_t longest() const { return longest_; }  // tokens of the longest prompt
  [[nodiscard]] Prompt copy(std::int64_t prompt) const;
  void add(const Prompt& prompt);

  // The whole set as flat arrays, for the token cache.
  struct Arrays {
    std::span<const TokenId> tokens;
    std::string_view texts;  // row 0, prefill 0, row 1, prefill 1, ...
    // [prompts] each: where the tokens, the row and the prefill of a prompt end.
    std::span<const std::int64_t> token_ends, row_ends, prefill_ends;
  };
  [[nodiscard]] Arrays arrays() const { return {tokens_, texts_, token_ends_, row_ends_, prefill_ends_}; }
  [[nodiscard]] static PromptSet copy_of(const Arrays& arrays);

 private:
  [[nodiscard]] std::string_view row_text(std::int64_t prompt) const;

  std::vector<TokenId> tokens_;
  std::string texts_;
  std::vector<std::int64_t> token_ends_;
  std::vector<std::int64_t> row_ends_;
  std::vector<std::int64_t> prefill_ends_;
  std::int64_t longest_ = 0;
};

struct PromptOptions {
  ColumnOptions columns;
  std::int64_t max_prompt_length = 0;  // a prompt keeps its last max_prompt_length tokens; 0: all
};

// Returns the question of a row: the text of its prompt column, or its messages with the system prompt and without a
// final assistant message. Throws Error if the row has no such column.
[[nodiscard]] Json question_in(const Json& row, const ColumnOptions& columns);

// Renders and tokenises the prompts of all rows, in order. A text becomes one user message; the prompt column may also
// contain messages. The generation prompt follows a user's message; a final assistant message is left open for
// continuation. Throws Error if no row is usable.
[[nodiscard]] PromptSet encode_prompts(const Source& source, const Tokenizer& tokenizer,
                                       const ChatTemplate& chat_template, const PromptOptions& options,
                                       EncodingReport& report);

}  // namespace hone
