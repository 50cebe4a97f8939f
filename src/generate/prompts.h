// The prompts to generate from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "generate/options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hone {

struct GeneratePrompt {
  // A hash of the rendered prompt, for an endpoint of the messages; prompts that are equal have their count behind it.
  std::string key;
  std::string row;              // JSON: all columns
  std::string messages;         // JSON: as rendered
  std::string prefill;          // what the completion's text begins with: the start of an assistant's message
  bool opens_thoughts = false;  // the template wrote <think> itself
  bool is_text = false;         // one text became the messages
  std::vector<TokenId> tokens;  // for an endpoint none
};

// What a prompt asks, as rewards are told: a text, or messages without the start of an answer.
[[nodiscard]] Json question_of(const GeneratePrompt& prompt);

// What the prompts are rendered with.
struct PromptForm {
  const Tokenizer& tokenizer;
  const ChatTemplate& chat_template;
};

// The dataset's rows within the indices, without duplicates and contaminated ones. Throws Error where none is left, or
// one cannot be used. `form`: null where the prompts are for an endpoint, which renders them, or only looked at.
[[nodiscard]] std::vector<GeneratePrompt> read_prompts(const GenerateOptions& options, const PromptForm* form,
                                                       GenerateCounts& counts);

// Reads what `decontaminate` names. Throws Error where one cannot be read.
void check_benchmarks(const GenerateOptions& options);

// A completion as generations.jsonl keeps it.
struct GeneratedText {
  std::string text;
  std::string finish_reason;  // "stop": it ended by itself
  std::int64_t tokens = 0;
};
inline constexpr const char* kPromptHash = "prompt_hash";  // the column of a prompt's key
// The line of a prompt: its row, with `completions` and its key.
[[nodiscard]] Json journal_row(const GeneratePrompt& prompt, std::span<const GeneratedText> completions);

}  // namespace hone
