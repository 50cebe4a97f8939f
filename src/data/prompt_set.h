// Prompts to generate from, with the columns that rewards read.
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
  std::string prefill;  // the start of the answer where the prompt ends with an assistant message, else empty
  std::string row;      // JSON
};

class PromptSet {
 public:
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(token_ends_.size()); }
  [[nodiscard]] std::span<const TokenId> tokens(std::int64_t prompt) const;
  [[nodiscard]] std::string_view prefill(std::int64_t prompt) const;
  [[nodiscard]] Json row(std::int64_t prompt) const;               // all columns, as the source had them
  [[nodiscard]] std::int64_t longest() const { return longest_; }  // tokens
  [[nodiscard]] Prompt copy(std::int64_t prompt) const;
  void add(const Prompt& prompt);

  // All of it, as flat arrays.
  struct Arrays {
    std::span<const TokenId> tokens;
    std::string_view texts;  // row, prefill, row, prefill ...
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
  std::int64_t max_prompt_length = 0;  // tokens kept of a prompt, the last ones; 0: all
};

// What a row asks: the text of its prompt column, or its messages, with the system prompt and without the start of an
// answer. Throws Error where it has no such column.
[[nodiscard]] Json question_in(const Json& row, const ColumnOptions& columns);

// The rendered prompts of all rows, in order. A text becomes one user message; the prompt column may also hold
// messages. After a user's message stands the generation prompt; a last message of the assistant is left open to be
// continued. Throws Error where no row is usable.
[[nodiscard]] PromptSet encode_prompts(const Source& source, const Tokenizer& tokenizer,
                                       const ChatTemplate& chat_template, const PromptOptions& options,
                                       EncodingReport& report);

}  // namespace hone
